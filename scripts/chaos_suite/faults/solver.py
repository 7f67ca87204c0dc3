"""The MILP solver's process: killed, and hanging until the planner ends it."""

from __future__ import annotations

import signal
from pathlib import Path

from scripts.chaos_suite.faults.fault import CannotInjectError, Fault, Injected, frozen
from scripts.chaos_suite.world import World
from scripts.labcluster.processes import send_all

_SECONDS = (8.0, 25.0)  # longer than a plan may take; ordinary jobs come and ask for one


def _kill(world: World) -> Injected:
    send_all([_solver(world)], signal.SIGKILL)
    return Injected("SIGKILL", 2.0)


def _hang(world: World) -> Injected:
    return frozen([_solver(world)], world.chance.uniform(*_SECONDS))


def _crash_again_and_again(world: World) -> Injected:
    kills, end = 0, world.chance.randint(4, 8)
    while kills < end:
        try:
            send_all([_solver(world)], signal.SIGKILL)
            kills += 1
        except CannotInjectError:
            pass
        world.wait(1.0)
    return Injected(f"SIGKILL {kills} times in a row")


def _solver(world: World) -> int:
    for pid in world.service.children():
        if b"planner.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise CannotInjectError("the controller has no solver")


FAULTS = (
    Fault("solver-killed", "the MILP solver crashes", _kill),
    Fault("solver-hangs", "the MILP solver hangs", _hang),
    Fault(
        "solver-crashes-on",
        "the MILP solver crashes whenever it is started",
        _crash_again_and_again,
    ),
)
