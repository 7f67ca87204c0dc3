"""Single changes on a fleet that trains: a node joins, is lost, leaves, is reclaimed."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from scripts.benchkit.steps import standstill, trained_again, usual_step_s
from scripts.labcluster.fleet import PLANNED, Fleet, StuckError, started_fleet
from scripts.labcluster.lab import Tell

NODES = 4
PATIENCE_S = 120.0
_SCRIPT = Path(__file__).with_name("plain.py")
_SETTLED_STEPS = 5
_MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Setup:
    """One way for a trainer to follow changes of its nodes; ``words`` are options of ``plain``."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    c10d: bool = False  # torchrun's own rendezvous, which knows no planned leave

    @property
    def ways(self) -> tuple[str, ...]:
        """In which ways a node goes in each turn."""
        return ("kill", "reclaim") if self.c10d else ("kill", "reclaim", "leave")


_LARGE = "--width=333333"  # 25 million parameters, 300 MB with Adam's state
_SETUPS = (
    Setup("c10d", "stock c10d, tuned", c10d=True),
    Setup("handler", "our rendezvous, script unchanged"),
    Setup("told", "our rendezvous, saves when told", ("--keep=told",)),
    Setup("memory", "our rendezvous, state in memory", ("--keep=memory",)),
    Setup("told-large", "25 M, told, disk", ("--keep=told", _LARGE)),
    Setup("slow-large", "25 M, told, 200 MB/s", ("--keep=told", _LARGE, "--mb-per-s=200")),
    Setup("memory-large", "25 M, in memory", ("--keep=memory", _LARGE)),
)
SETUPS = {one.name: one for one in _SETUPS}


@dataclass(slots=True)
class Measured:
    """All single times of one set-up in seconds, and steps made again, by ``report.ROWS``' keys."""

    setup: Setup
    times_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    again: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)


def measure(setup: Setup, repeat: int, tell: Tell) -> Measured:
    """Let a node go in each way ``repeat`` times; one joins after each.

    A trainer that does not train on counts as a failure, and the next turn finds a new one.
    """
    measured = Measured(setup)
    turns = measured.times_s[f"{setup.ways[-1]}_s"]
    while len(turns) < repeat and len(measured.failures) < _MOST_FAILURES:
        try:
            with started_fleet(_SCRIPT, *setup.words, c10d=setup.c10d) as fleet:
                fleet.start(NODES)
                _settle(fleet)
                while len(turns) < repeat:
                    _turn(fleet, measured)
                    tell(f"{len(turns)} of {repeat}")
        except StuckError as error:
            measured.failures.append(str(error))
            tell(f"failed: {error}")
    return measured


def _turn(fleet: Fleet, measured: Measured) -> None:
    """Take a node away in each way, and give one back after each. Raises StuckError."""
    times_s = measured.times_s
    place = len(times_s["kill_s"]) % len(fleet.nodes)  # rank 0 as often as any other
    times_s["step_s"].append(usual_step_s(fleet.log.of(fleet.nodes[0].job)))
    for kind in measured.setup.ways:
        _change(fleet, kind, place, measured)
        _change(fleet, "join", place, measured)
        node = fleet.nodes[-1]
        times_s["start_s"].append(fleet.log.of(node.job)[0].time_s - node.started_s)


def _change(fleet: Fleet, kind: str, place: int, measured: Measured) -> None:
    """Let a node come or go, and add how long the slowest survivor stood still."""
    before, since_s = list(fleet.nodes), time.monotonic()
    fleet.change(kind, place)
    # Their steps; the lists grow as ``_settle`` reads on.
    survivors = [fleet.log.of(node.job) for node in before if node in fleet.nodes]
    usual_s = usual_step_s(survivors[0])  # as read before the change
    _settle(fleet)
    world, planned = len(fleet.nodes), kind in PLANNED
    found = [standstill(steps, since_s, world, usual_s, planned) for steps in survivors]
    stood_s = [one for one in found if one is not None]
    if len(stood_s) < len(found):
        raise StuckError("a survivor made no step before the change")
    measured.times_s[f"{kind}_s"].append(max(stood_s))
    measured.again[f"{kind}_s"].append(max(trained_again(steps, since_s) for steps in survivors))


def _settle(fleet: Fleet) -> None:
    """Wait until all nodes train together. Raises StuckError."""
    fleet.wait(lambda: fleet.together(_SETTLED_STEPS), PATIENCE_S)
