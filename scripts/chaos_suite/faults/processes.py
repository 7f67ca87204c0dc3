"""Processes that are killed, stopped, told to end: daemons, the MILP solver, those of elements."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from scripts.chaos_suite.faults.fault import CannotInjectError, Fault, Injected
from scripts.chaos_suite.faults.victims import running, training, workers
from scripts.chaos_suite.observe import Element
from scripts.chaos_suite.world import World
from scripts.labcluster.processes import send_all

Find = Callable[[World], tuple[list[int], str]]  # process ids, and where they are in words
Inject = Callable[[World], Injected]


def signalled(find: Find, number: signal.Signals = signal.SIGKILL) -> Inject:
    """Send processes a signal."""

    def inject(world: World) -> Injected:
        pids, where = find(world)
        send_all(pids, number)
        return Injected(f"{number.name}{where}")

    return inject


def frozen(find: Find, least_s: float, most_s: float) -> Inject:
    """Stop processes, and let them go on after so many seconds."""

    def inject(world: World) -> Injected:
        (pids, where), seconds = find(world), world.chance.uniform(least_s, most_s)
        send_all(pids, signal.SIGSTOP)
        undo = lambda: send_all(pids, signal.SIGCONT)  # noqa: E731
        return Injected(f"SIGSTOP{where} for {seconds:.0f} s", seconds, undo)

    return inject


def ended(
    choose: Callable[[World], str], number: signal.Signals, least_s: float, most_s: float
) -> Inject:
    """End one of Slurm's daemons, and start it again after so many seconds."""

    def inject(world: World) -> Injected:
        name, seconds = choose(world), world.chance.uniform(least_s, most_s)
        start = world.end_daemon(name, number)
        return Injected(f"{number.name} of {name}, away for {seconds:.0f} s", seconds, start)

    return inject


def again_and_again(kill: Inject, least: int, most: int) -> Inject:
    """Inject a fault whenever it is possible, so often in all."""

    def inject(world: World) -> Injected:
        times, end = 0, world.chance.randint(least, most)
        while times < end:
            try:
                kill(world)
                times += 1
            except CannotInjectError:
                pass
            world.wait(1.0)
        return Injected(f"{times} times in a row")

    return inject


def _kill_controller(world: World) -> Injected:
    world.service.kill(hold=True)
    return Injected("SIGKILL", world.chance.uniform(0, 20), world.service.start)


def _kill_controller_soon(world: World) -> Injected:
    """Kill it in the middle of what it does after a start."""
    kills = world.chance.randint(2, 4)
    for _ in range(kills):
        world.service.kill()
        world.service.start()
        world.wait(world.chance.uniform(0.3, 4))
    return Injected(f"SIGKILL {kills} times in a row")


def _kill_both(world: World) -> Injected:
    world.service.kill(hold=True)
    world.service.keeper.kill()
    return Injected("SIGKILL of both", world.chance.uniform(0, 15), world.service.start)


def _keeper(world: World) -> tuple[list[int], str]:
    pid = world.service.keeper.pid
    return [] if pid is None else [pid], ""


def _slurmctld(world: World) -> tuple[list[int], str]:
    return [world.lab.daemons["slurmctld"].pid], ""


def _solver(world: World) -> tuple[list[int], str]:
    for pid in world.service.children():
        if b"planner.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return [pid], ""
    raise CannotInjectError("the controller has no solver")


def _agent(world: World) -> tuple[list[int], str]:
    element = training(world)
    return _of(element, [pid for pid in _pids(world, element) if _is_agent(pid)][:1])


def _worker(world: World) -> tuple[list[int], str]:
    element = training(world)
    return _of(element, workers(world, element)[:1])


def _element(world: World) -> tuple[list[int], str]:
    element = training(world)
    return _of(element, _pids(world, element))


def _node(world: World) -> tuple[list[int], str]:
    """Return the slurmd of a node, and the processes of the element there."""
    element = running(world)
    return _of(element, [world.lab.daemons[element.node].pid, *_pids(world, element)])


def _of(element: Element, pids: list[int]) -> tuple[list[int], str]:
    if not pids:
        raise CannotInjectError(f"no such process on {element.node}")
    return pids, f" on {element.node}"


def _pids(world: World, element: Element) -> list[int]:
    return sorted(one.pid for one in world.processes_of(element))


def _is_agent(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False
    # srun has torchrun's name among its arguments; a forked worker has another first word.
    ours = any(word.endswith(("/torchrun", "torch.distributed.run")) for word in words[1:3])
    return Path(words[0]).name.startswith("python") and ours


def _slurmd(world: World) -> str:
    return world.chance.choice(world.nodes)


_KILL, _TERM = signal.SIGKILL, signal.SIGTERM
FAULTS = (
    Fault("controller-killed", "the controller is killed", _kill_controller),
    Fault("controller-flaps", "the controller is killed while it starts", _kill_controller_soon),
    Fault("keeper-killed", "the keeper is killed", signalled(_keeper)),
    Fault("keeper-frozen", "the keeper hangs", frozen(_keeper, 3, 15)),
    Fault("both-killed", "controller and keeper are killed", _kill_both),
    Fault(
        "slurmctld-killed",
        "slurmctld is killed and comes back",
        ended(lambda _: "slurmctld", _KILL, 1, 15),
    ),
    Fault(
        "slurmctld-refuses",
        "slurmctld is away for some time",
        ended(lambda _: "slurmctld", _TERM, 5, 20),
    ),
    Fault("slurmctld-slow", "slurmctld does not answer in time", frozen(_slurmctld, 3, 20)),
    Fault("slurmd-killed", "a node's slurmd is killed and comes back", ended(_slurmd, _KILL, 1, 8)),
    Fault(
        "munge-killed", "munged is killed and comes back", ended(lambda _: "munged", _KILL, 1, 12)
    ),
    Fault("agent-killed", "an agent (torchrun) is killed", signalled(_agent)),
    Fault("agent-terminated", "an agent gets SIGTERM from somebody", signalled(_agent, _TERM)),
    Fault("worker-killed", "a training process is killed", signalled(_worker)),
    Fault("worker-frozen", "a training process hangs for some time", frozen(_worker, 2, 15)),
    Fault("element-killed", "all processes of an element are killed", signalled(_element)),
    Fault("node-hangs", "a node and all on it stand still, and go on", frozen(_node, 4, 35)),
    Fault("solver-killed", "the MILP solver crashes", signalled(_solver)),
    # For longer than a plan may take; ordinary jobs come and ask for one.
    Fault("solver-hangs", "the MILP solver hangs", frozen(_solver, 8, 25)),
    Fault(
        "solver-crashes-on",
        "the MILP solver crashes whenever it is started",
        again_and_again(signalled(_solver), 4, 8),
    ),
)
