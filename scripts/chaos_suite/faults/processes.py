"""Processes of elements: an agent, a training process, all of them; killed and frozen."""

from __future__ import annotations

import signal
from pathlib import Path

from scripts.chaos_suite.faults.fault import CannotInjectError, Fault, Injected, frozen
from scripts.chaos_suite.faults.victims import training, workers
from scripts.chaos_suite.observe import Element
from scripts.chaos_suite.world import World
from scripts.labcluster.processes import send_all


def _kill_agent(world: World) -> Injected:
    element = training(world)
    send_all(_agents(world, element), signal.SIGKILL)
    return Injected(f"SIGKILL on {element.node}")


def _kill_worker(world: World) -> Injected:
    element = training(world)
    send_all(workers(world, element)[:1] or _none(element, "training process"), signal.SIGKILL)
    return Injected(f"SIGKILL on {element.node}")


def _freeze_worker(world: World) -> Injected:
    element = training(world)
    pids = workers(world, element) or _none(element, "training process")
    return frozen(pids, world.chance.uniform(2, 15), f" on {element.node}")


def _kill_all(world: World) -> Injected:
    element = training(world)
    send_all(_pids(world, element), signal.SIGKILL)
    return Injected(f"SIGKILL of all on {element.node}")


def _terminate_agent(world: World) -> Injected:
    element = training(world)
    send_all(_agents(world, element), signal.SIGTERM)
    return Injected(f"SIGTERM on {element.node}")


def _pids(world: World, element: Element) -> list[int]:
    return sorted(one.pid for one in world.processes_of(element))


def _agents(world: World, element: Element) -> list[int]:
    found = [pid for pid in _pids(world, element) if _is_agent(pid)]
    return found[:1] or _none(element, "agent")


def _is_agent(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False
    # srun has torchrun's name among its arguments; a forked worker has another first word.
    ours = any(word.endswith(("/torchrun", "torch.distributed.run")) for word in words[1:3])
    return Path(words[0]).name.startswith("python") and ours


def _none(element: Element, what: str) -> list[int]:
    raise CannotInjectError(f"no {what} found on {element.node}")


FAULTS = (
    Fault("agent-killed", "an agent (torchrun) is killed", _kill_agent),
    Fault("agent-terminated", "an agent gets SIGTERM from somebody", _terminate_agent),
    Fault("worker-killed", "a training process is killed", _kill_worker),
    Fault("worker-frozen", "a training process hangs for some time", _freeze_worker),
    Fault("element-killed", "all processes of an element are killed", _kill_all),
)
