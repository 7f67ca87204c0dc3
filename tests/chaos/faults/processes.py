"""Processes that are killed, stopped or told to end: of daemons, of the solver, of elements."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bftrainer_slurm.elastic.processes import below
from scripts.labcluster.processes import send_all
from tests.chaos.faults.fault import CannotInjectError, Course, Fault, chosen
from tests.chaos.observe import Element, Process, Snapshot
from tests.chaos.world import World

Hit = tuple[list[int], str]  # process ids, and where they are in words
Find = Callable[[World], Hit]
_KILL, _TERM = signal.SIGKILL, signal.SIGTERM


def _signalled(find: Find, number: signal.Signals, world: World) -> Course:
    pids, where = find(world)
    send_all(pids, number)
    yield f"{number.name}{where}", 0.0


def _again_and_again(find: Find, least: int, most: int, world: World) -> Course:
    """Kill processes several times, each time as soon as they are there again."""
    left = times = world.chance.randint(least, most)
    while left:
        with suppress(CannotInjectError):
            send_all(find(world)[0], _KILL)
            left -= 1
        world.wait(1.0)
    yield f"{times} times in a row", 0.0


def _frozen(find: Find, least_s: float, most_s: float, world: World) -> Course:
    """Stop processes, and let them go on some seconds later."""
    (pids, where), seconds = find(world), world.chance.uniform(least_s, most_s)
    send_all(pids, signal.SIGSTOP)
    yield f"SIGSTOP{where} for {seconds:.0f} s", seconds
    send_all(pids, signal.SIGCONT)


def _ended(
    daemon: str, number: signal.Signals, least_s: float, most_s: float, world: World
) -> Course:
    """End a daemon of Slurm (``slurmd``: that of any node), and start it some seconds later."""
    name = world.chance.choice(world.nodes) if daemon == "slurmd" else daemon
    world.silent |= {name}.intersection(world.nodes)
    seconds = world.chance.uniform(least_s, most_s)
    start = world.end_daemon(name, number)
    yield f"{number.name} of {name}, away for {seconds:.0f} s", seconds
    start()


def _services_killed(keeper: bool, most_s: float, world: World) -> Course:
    world.service.kill(hold=True)
    if keeper:
        world.service.keeper.kill()
    yield "SIGKILL" + " of both" * keeper, world.chance.uniform(0, most_s)
    world.service.start()


def _controller_flaps(world: World) -> Course:
    """Kill the controller again and again, in the middle of what it does at its start."""
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
    for pid in below(world.service.pid or -1):
        with suppress(OSError):  # it has ended meanwhile
            if b"planner.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return [pid], ""
    raise CannotInjectError("the controller has no solver")


def _of_element(
    what: str, choose: Callable[[Snapshot, Element], list[Process]], world: World
) -> Hit:
    """Choose processes of an element that makes steps."""

    def hits(seen: Snapshot) -> list[tuple[list[Process], Element]]:
        found = [(choose(seen, one), one) for one in seen.mine() if seen.workers(one)]
        return [(processes, one) for processes, one in found if processes]

    processes, element = chosen(world, hits, what)
    world.spared.pop(element.array, None)
    return [one.pid for one in processes], f" of {element} on {element.node}"


def _node(world: World) -> Hit:
    """Return the slurmd of a node, and the processes of the element there."""
    pids, where = _ELEMENT(world)
    node = where.split()[-1]
    world.struck.add(node)
    return [world.lab.daemons[node].pid, *pids], where


def _is_agent(process: Process) -> bool:
    program, *words = process.command or ("",)
    # srun has torchrun's name among its arguments; a forked worker has another first word.
    ours = any(word.endswith(("/torchrun", "torch.distributed.run")) for word in words[:2])
    return Path(program).name.startswith("python") and ours


def _agent_of(seen: Snapshot, element: Element) -> list[Process]:
    return [one for one in seen.processes_of(element) if _is_agent(one)][:1]


def _worker_of(seen: Snapshot, element: Element) -> list[Process]:
    return seen.workers(element)[:1]


_AGENT = partial(_of_element, "agent", _agent_of)
_WORKER = partial(_of_element, "training process", _worker_of)
_ELEMENT = partial(_of_element, "training element", Snapshot.processes_of)

FAULTS: dict[str, Fault] = {
    "controller-killed": partial(_services_killed, False, 20),
    "controller-flaps": _controller_flaps,
    "keeper-killed": partial(_signalled, _keeper, _KILL),
    "keeper-frozen": partial(_frozen, _keeper, 3, 15),
    "both-killed": partial(_services_killed, True, 15),
    "slurmctld-killed": partial(_ended, "slurmctld", _KILL, 1, 15),
    "slurmctld-refuses": partial(_ended, "slurmctld", _TERM, 5, 20),
    "slurmctld-slow": partial(_frozen, _slurmctld, 3, 20),
    "slurmd-killed": partial(_ended, "slurmd", _KILL, 1, 8),
    "munge-killed": partial(_ended, "munged", _KILL, 1, 12),
    "agent-killed": partial(_signalled, _AGENT, _KILL),
    "agent-terminated": partial(_signalled, _AGENT, _TERM),
    "worker-killed": partial(_signalled, _WORKER, _KILL),
    "worker-frozen": partial(_frozen, _WORKER, 2, 15),
    "element-killed": partial(_signalled, _ELEMENT, _KILL),
    "node-hangs": partial(_frozen, _node, 4, 35),
    "solver-killed": partial(_signalled, _solver, _KILL),
    # Longer than a plan may take; ordinary jobs that come make plans necessary.
    "solver-hangs": partial(_frozen, _solver, 8, 25),
    "solver-crashes-on": partial(_again_and_again, _solver, 4, 8),
}
