"""Processes that are killed, stopped, told to end: daemons, the MILP solver, those of elements."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scripts.chaos_suite.faults.fault import CannotInjectError, Course, Fault, chosen
from scripts.chaos_suite.observe import Element, Process, Snapshot
from scripts.chaos_suite.world import World
from scripts.labcluster.processes import send_all

Hit = tuple[list[int], str]  # process ids, and where they are in words
Find = Callable[[World], Hit]
_KILL, _TERM = signal.SIGKILL, signal.SIGTERM


def signalled(find: Find, number: signal.Signals = _KILL) -> Fault:
    """Send processes a signal."""

    def fault(world: World) -> Course:
        pids, where = find(world)
        send_all(pids, number)
        yield f"{number.name}{where}", 0.0

    return fault


def again_and_again(find: Find, least: int, most: int) -> Fault:
    """Kill processes whenever they are there, so often in all."""

    def fault(world: World) -> Course:
        left = times = world.chance.randint(least, most)
        while left:
            with suppress(CannotInjectError):
                send_all(find(world)[0], _KILL)
                left -= 1
            world.wait(1.0)
        yield f"{times} times in a row", 0.0

    return fault


def frozen(find: Find, least_s: float, most_s: float) -> Fault:
    """Stop processes, and let them go on after so many seconds."""

    def fault(world: World) -> Course:
        (pids, where), seconds = find(world), world.chance.uniform(least_s, most_s)
        send_all(pids, signal.SIGSTOP)
        yield f"SIGSTOP{where} for {seconds:.0f} s", seconds
        send_all(pids, signal.SIGCONT)

    return fault


def ended(daemon: str, number: signal.Signals, least_s: float, most_s: float) -> Fault:
    """End a daemon of Slurm (``slurmd``: any one), and start it after so many seconds."""

    def fault(world: World) -> Course:
        name = world.chance.choice(world.nodes) if daemon == "slurmd" else daemon
        seconds = world.chance.uniform(least_s, most_s)
        start = world.end_daemon(name, number)
        yield f"{number.name} of {name}, away for {seconds:.0f} s", seconds
        start()

    return fault


def controller_killed(most_s: float, keeper: bool = False) -> Fault:
    """Kill the controller, and its keeper, for up to so many seconds."""

    def fault(world: World) -> Course:
        world.service.kill(hold=True)
        if keeper:
            world.service.keeper.kill()
        yield f"SIGKILL{' of both' if keeper else ''}", world.chance.uniform(0, most_s)
        world.service.start()

    return fault


def _controller_flaps(world: World) -> Course:
    """Kill it in the middle of what it does after a start."""
    kills = world.chance.randint(2, 4)
    for _ in range(kills):
        world.service.kill()
        world.service.start()
        world.wait(world.chance.uniform(0.3, 4))
    yield f"SIGKILL {kills} times in a row", 0.0


def _keeper(world: World) -> Hit:
    pid = world.service.keeper.pid
    return [] if pid is None else [pid], ""


def _slurmctld(world: World) -> Hit:
    return [world.lab.daemons["slurmctld"].pid], ""


def _solver(world: World) -> Hit:
    for pid in world.service.children():
        if b"planner.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return [pid], ""
    raise CannotInjectError("the controller has no solver")


def of_element(what: str, choose: Callable[[Snapshot, Element], list[Process]]) -> Find:
    """Find processes of an element that makes steps."""

    def hits(seen: Snapshot) -> list[tuple[list[Process], str]]:
        found = [(choose(seen, one), one.node) for one in seen.mine() if seen.workers(one)]
        return [(processes, node) for processes, node in found if processes]

    def find(world: World) -> Hit:
        processes, node = chosen(world, hits, what)
        return [one.pid for one in processes], f" on {node}"

    return find


def _node(world: World) -> Hit:
    """Return the slurmd of a node, and the processes of the element there."""
    pids, where = _ELEMENT(world)
    return [world.lab.daemons[where.split()[-1]].pid, *pids], where


def _is_agent(process: Process) -> bool:
    program, *words = process.command or ("",)
    # srun has torchrun's name among its arguments; a forked worker has another first word.
    ours = any(word.endswith(("/torchrun", "torch.distributed.run")) for word in words[:2])
    return Path(program).name.startswith("python") and ours


_AGENT = of_element(
    "agent", lambda seen, one: [it for it in seen.processes_of(one) if _is_agent(it)][:1]
)
_WORKER = of_element("training process", lambda seen, one: seen.workers(one)[:1])
_ELEMENT = of_element("training element", Snapshot.processes_of)

FAULTS: dict[str, Fault] = {
    "controller-killed": controller_killed(20),
    "controller-flaps": _controller_flaps,
    "keeper-killed": signalled(_keeper),
    "keeper-frozen": frozen(_keeper, 3, 15),
    "both-killed": controller_killed(15, keeper=True),
    "slurmctld-killed": ended("slurmctld", _KILL, 1, 15),
    "slurmctld-refuses": ended("slurmctld", _TERM, 5, 20),
    "slurmctld-slow": frozen(_slurmctld, 3, 20),
    "slurmd-killed": ended("slurmd", _KILL, 1, 8),
    "munge-killed": ended("munged", _KILL, 1, 12),
    "agent-killed": signalled(_AGENT),
    "agent-terminated": signalled(_AGENT, _TERM),
    "worker-killed": signalled(_WORKER),
    "worker-frozen": frozen(_WORKER, 2, 15),
    "element-killed": signalled(_ELEMENT),
    "node-hangs": frozen(_node, 4, 35),
    "solver-killed": signalled(_solver),
    # For longer than a plan may take; ordinary jobs come and ask for one.
    "solver-hangs": frozen(_solver, 8, 25),
    "solver-crashes-on": again_and_again(_solver, 4, 8),
}
