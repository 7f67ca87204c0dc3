"""Single events on a fleet that trains: a node joins, is lost, leaves, is reclaimed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from scripts.elastic_bench.figures import standstill, usual_step_s
from scripts.elastic_bench.fleet import Fleet, Node, Training
from scripts.elastic_bench.setups import Setup
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
    copy_s: list[float] = field(default_factory=list)  # of each join, copying the state
    kill_s: list[float] = field(default_factory=list)
    leave_s: list[float] = field(default_factory=list)
    reclaim_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(
        default_factory=list
    )  # joining agent started, until its first step
    failures: list[str] = field(default_factory=list)


class NotSettledError(Exception):
    """The nodes did not train together in time."""


def measure(setup: Setup, training: Training, repeat: int, tell: Tell) -> Measured:
    """Measure each event so often; joins more often, as a node joins after each other event.

    A trainer that does not train on counts as a failure, and the next event finds a new one.
    """
    measured = Measured(setup)
    while not _enough(measured, repeat) and len(measured.failures) < _MOST_FAILURES:
        try:
            with Fleet(setup, training) as fleet:
                fleet.start(NODES)
                settle(fleet)
                while not _enough(measured, repeat):
                    turn(fleet, measured)
                    tell(f"{len(measured.kill_s)} of {repeat}")
        except NotSettledError as error:
            measured.failures.append(str(error))
            tell(f"failed: {error}")
    return measured


def _enough(measured: Measured, repeat: int) -> bool:
    return min(len(measured.kill_s), len(measured.leave_s), len(measured.reclaim_s)) >= repeat


def turn(fleet: Fleet, measured: Measured) -> None:
    """Take a node away in each way, and give one back after each.

    Raises:
        NotSettledError: the others do not train on.
    """
    place = len(measured.kill_s) % len(fleet.nodes)  # rank 0 as often as any other
    measured.step_s.append(usual_step_s(fleet.logs.of(fleet.nodes[0].job)))
    measured.kill_s.append(_shrink(fleet, place, fleet.kill, planned=False))
    _grow(fleet, measured)
    measured.reclaim_s.append(_shrink(fleet, place, fleet.reclaim, planned=False))
    _grow(fleet, measured)
    if not fleet.setup.parts:  # then that is how a node leaves
        measured.leave_s.append(measured.reclaim_s[-1])
        return
    measured.leave_s.append(_shrink(fleet, place, fleet.part, planned=True))
    _grow(fleet, measured)


def _shrink(fleet: Fleet, place: int, take: Callable[[Node], object], *, planned: bool) -> float:
    since_s = time.monotonic()
    take(fleet.nodes[place])
    return _pause(fleet, list(fleet.nodes), since_s, planned)


def _grow(fleet: Fleet, measured: Measured) -> None:
    others = list(fleet.nodes)
    [node] = fleet.start()
    measured.join_s.append(_pause(fleet, others, node.started_s, planned=True))
    copy_s = fleet.logs.copy_s(node.job)
    if copy_s is not None:
        measured.copy_s.append(copy_s)
    measured.start_s.append(fleet.logs.of(node.job)[0].time_s - node.started_s)


def _pause(fleet: Fleet, survivors: list[Node], since_s: float, planned: bool) -> float:
    """Return how long the survivor that stood still longest did."""
    usual_s = usual_step_s(fleet.logs.of(survivors[0].job))  # as read before the event
    settle(fleet)
    world = len(fleet.nodes)
    found = [
        standstill(fleet.logs.of(node.job), since_s, world, usual_s, planned) for node in survivors
    ]
    times = [one for one in found if one is not None]
    if len(times) < len(found):
        raise NotSettledError("a survivor made no step before the change")
    return max(times)


def settle(fleet: Fleet) -> None:
    """Wait until all nodes train together.

    Raises:
        NotSettledError: they do not; the message has an agent's last words.
    """

    def over() -> bool:
        return fleet.settled(_SETTLED_STEPS) or any(node.ended() for node in fleet.nodes)

    in_time = fleet.wait(over, PATIENCE_S)
    ended = next((node for node in fleet.nodes if node.ended()), None)
    if ended is not None:
        raise NotSettledError(f"an agent ended by itself; it says: {fleet.messages(ended)}")
    if not in_time:
        words = f"{len(fleet.nodes)} nodes do not train together within {PATIENCE_S:g} s"
        raise NotSettledError(f"{words}; one says: {fleet.messages(fleet.nodes[0])}")
