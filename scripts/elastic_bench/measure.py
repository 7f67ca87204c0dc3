"""Single events on a fleet that trains: a node joins, is lost, leaves, is reclaimed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from scripts.elastic_bench.figures import standstill, trained_again, usual_step_s
from scripts.elastic_bench.fleet import Fleet, Setup, StuckError
from scripts.labcluster.lab import Tell

NODES = 4
PATIENCE_S = 120.0
_SETTLED_STEPS = 5
_MOST_FAILURES = 3


@dataclass(slots=True)
class Measured:
    """All single times of one set-up, in seconds."""

    setup: Setup
    step_s: list[float] = field(default_factory=list)  # the usual time of a step, all nodes there
    join_s: list[float] = field(default_factory=list)
    kill_s: list[float] = field(default_factory=list)
    leave_s: list[float] = field(default_factory=list)
    reclaim_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)  # a joining agent's, until its first step
    failures: list[str] = field(default_factory=list)
    again: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # steps


def measure(setup: Setup, repeat: int, tell: Tell) -> Measured:
    """Measure each event ``repeat`` times; joins more often: one follows each other event.

    A trainer that does not train on counts as a failure, and the next event finds a new one.
    """
    measured = Measured(setup)
    leaves = measured.leave_s  # they come last in a turn
    while len(leaves) < repeat and len(measured.failures) < _MOST_FAILURES:
        try:
            with Fleet(setup) as fleet:
                fleet.start(NODES)
                settle(fleet)
                while len(leaves) < repeat:
                    turn(fleet, measured)
                    tell(f"{len(leaves)} of {repeat}")
        except StuckError as error:
            measured.failures.append(str(error))
            tell(f"failed: {error}")
    return measured


def turn(fleet: Fleet, measured: Measured) -> None:
    """Take a node away in each way, and give one back after each. Raises StuckError."""
    place = len(measured.kill_s) % len(fleet.nodes)  # rank 0 as often as any other
    measured.step_s.append(usual_step_s(fleet.logs.of(fleet.nodes[0].job)))
    again = measured.again
    measured.kill_s.append(_pause(fleet, lambda: fleet.kill(fleet.nodes[place]), again["kill_s"]))
    _grow(fleet, measured)
    reclaimed_s = _pause(fleet, lambda: fleet.reclaim(fleet.nodes[place]), again["reclaim_s"])
    measured.reclaim_s.append(reclaimed_s)
    _grow(fleet, measured)
    if not fleet.setup.parts:  # then that is how a node leaves
        measured.leave_s.append(measured.reclaim_s[-1])
        return
    left_s = _pause(fleet, lambda: fleet.part(fleet.nodes[place]), again["leave_s"], planned=True)
    measured.leave_s.append(left_s)
    _grow(fleet, measured)


def _grow(fleet: Fleet, measured: Measured) -> None:
    measured.join_s.append(_pause(fleet, fleet.start, measured.again["join_s"], planned=True))
    node = fleet.nodes[-1]
    measured.start_s.append(fleet.logs.of(node.job)[0].time_s - node.started_s)


def _pause(
    fleet: Fleet, change: Callable[[], object], again: list[int], planned: bool = False
) -> float:
    """Let nodes come or go; return how long the slowest survivor stood still.

    How many steps it made ``again`` is added to that list.
    """
    before, since_s = list(fleet.nodes), time.monotonic()
    change()
    # Their steps; the lists grow as ``settle`` reads on.
    survivors = [fleet.logs.of(node.job) for node in before if node in fleet.nodes]
    usual_s = usual_step_s(survivors[0])  # as read before the change
    settle(fleet)
    world = len(fleet.nodes)
    found = [standstill(steps, since_s, world, usual_s, planned) for steps in survivors]
    times_s = [one for one in found if one is not None]
    if len(times_s) < len(found):
        raise StuckError("a survivor made no step before the change")
    again.append(max(trained_again(steps, since_s) for steps in survivors))
    return max(times_s)


def settle(fleet: Fleet) -> None:
    """Wait until all nodes train together. Raises StuckError."""
    fleet.wait(lambda: fleet.settled(_SETTLED_STEPS), PATIENCE_S)
