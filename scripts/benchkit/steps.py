"""A log of steps, read while it is written, and how long nodes stood still by it. No torch here.

Each training process has a file NODE.PID in the log's folder, with a line for each step: its time,
in a world of how many processes, its number in the training, and what else there is as JSON.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, takewhile
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benchkit.logs import Tail

_USUAL = 50  # steps whose median is the usual step time


@dataclass(frozen=True, slots=True)
class Step:
    """One step that a training process completed; ``more``: what else it says."""

    time_s: float  # CLOCK_MONOTONIC: one clock for all nodes, as they are all on one host
    world: int
    number: int = 0
    node: str = ""
    process: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)


class StepLog:
    """All steps so far, of each node in order of time; ``read`` reads new ones."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder, "*.[0-9]*")
        self._steps: dict[str, list[Step]] = defaultdict(list)

    def read(self) -> None:
        """Read all lines that were written since the last call; lines of another kind are not."""
        for path, lines in self._tail.read():
            node, _, process = path.name.rpartition(".")
            steps = self._steps[node]
            for line in lines:
                match line.split(maxsplit=3):
                    case [time_s, world, number, *more]:
                        said = json.loads(more[0]) if more else {}
                        place = float(time_s), int(world), int(number)
                        steps.append(Step(*place, node, int(process), said))
            steps.sort(key=_time_s)

    def of(self, node: str) -> list[Step]:
        """Return the steps of a node as read so far; the list grows as more are read."""
        return self._steps[node]

    def all(self) -> list[Step]:
        """Read on, and return the steps of all nodes in order of time."""
        self.read()
        return sorted(chain.from_iterable(self._steps.values()), key=_time_s)


def _time_s(step: Step) -> float:
    return step.time_s


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
    begin = bisect_right(steps, since_s, key=_time_s)
    first = next((n for n in range(begin, len(steps)) if steps[n].world == world), None)
    if first is None:
        return None
    last = first - 1 if planned else begin - 1
    if last < 0:
        return None
    return steps[first].time_s - steps[last].time_s - (first - last) * usual_s


def trained_again(steps: Sequence[Step], since_s: float) -> int:
    """Return how many steps that a node had made it made again after the event at ``since_s``.

    Those that come before the event may be made again, too.
    """
    late = [n for n in range(1, len(steps)) if steps[n].time_s > since_s]
    return sum(max(0, steps[n - 1].number + 1 - steps[n].number) for n in late)
