"""Step logs: read while they are written, and what they say. No torch here.

How long nodes stood still is a pure function of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import median

from scripts.benchkit.logs import Tail

_USUAL = 50  # steps whose median is the usual step time


def usual_step_s(steps: Sequence[Step]) -> float:
    """Return the median time between the last steps in a world of one size; at least two steps."""
    tail = list(takewhile(lambda one: one.world == steps[-1].world, reversed(steps[-_USUAL:])))
    return median(late.time_s - early.time_s for late, early in pairwise(tail))


def standstill(
    steps: Sequence[Step], since_s: float, world: int, usual_s: float, planned: bool
) -> float | None:
    """Return how long a node stood still until it trained in a world of another size.

    That is the time from its last step before the event at ``since_s`` to its first step in the
    new ``world``, less the usual time of the steps in between. Before a ``planned`` change the
    others train on, so the time counts from its last step in the old world.
    None: it does not train in the new world, or did not in the old one.
    """
    begin = bisect_right(steps, since_s, key=lambda one: one.time_s)
    first = next((n for n in range(begin, len(steps)) if steps[n].world == world), None)
    if first is None:
        return None
    last = first - 1 if planned else begin - 1
    if last < 0:
        return None
    return steps[first].time_s - steps[last].time_s - (first - last) * usual_s


@dataclass(frozen=True, slots=True)
class Step:
    """One step that a training process completed."""

    time_s: float  # CLOCK_MONOTONIC: one clock for all nodes, as they are all on one host
    world: int
    number: int = 0  # in the training


def trained_again(steps: Sequence[Step], since_s: float) -> int:
    """Return how many steps that a node had made it made again after the event at ``since_s``.

    Those that come before the event may be made again, too.
    """
    late = [n for n in range(1, len(steps)) if steps[n].time_s > since_s]
    return sum(max(0, steps[n - 1].number + 1 - steps[n].number) for n in late)


class StepLogs:
    """All steps of each node so far, in order of time; ``read`` reads new ones."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder, "*.log")
        self._steps: dict[str, list[Step]] = defaultdict(list)

    def read(self) -> None:
        """Read all lines that were written since the last call."""
        for path, lines in self._tail.read():
            steps = self._steps[path.name.partition(".")[0]]
            for time_s, world, number in map(str.split, lines):
                steps.append(Step(float(time_s), int(world), int(number)))
            steps.sort(key=lambda one: one.time_s)

    def of(self, node: str) -> list[Step]:
        """Return the steps that a node's processes completed, in order of time."""
        return self._steps[node]
