"""Step logs: read while they are written, and what they say. No torch here.

How long nodes stood still, and what a trainer lost, are pure functions of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import median

from scripts.benchkit.logs import Tail

_USUAL = 50  # steps whose median is the usual step time


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the steps of a training."""

    steps: int  # the highest one
    repeated: int  # how often a step was done again, as its result was lost
    missing: int  # steps that nobody made
    compared: int  # steps whose weights were compared between nodes
    differing: int  # of them: steps after which nodes had different weights


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


def account(nodes: Mapping[str, Sequence[Step]]) -> Account:
    """Return what became of the steps of one training.

    A step is repeated as often as the node that made it most often made it again. Weights are
    compared between nodes that made a step once, in a world of the same size: a node that was
    lost may have been the only one to complete it.
    """
    often: Counter[int] = Counter()
    weights: dict[tuple[int, int], list[int]] = defaultdict(list)
    for steps in nodes.values():
        made = Counter(one.step for one in steps)
        for step, count in made.items():
            often[step] = max(often[step], count)
        for one in steps:
            if made[one.step] == 1:
                weights[one.step, one.world].append(one.weights)
    once = [found for (step, _), found in weights.items() if often[step] == 1 and len(found) > 1]
    highest = max(often, default=0)
    return Account(
        steps=highest,
        repeated=sum(count - 1 for count in often.values()),
        missing=highest - len(often),
        compared=len(once),
        differing=sum(len(set(found)) > 1 for found in once),
    )


def agreed(nodes: Mapping[str, Sequence[Step]]) -> bool | None:
    """Return whether all nodes have the same weights after the last step that all have made."""
    last = [{one.step: one.weights for one in steps} for steps in nodes.values()]
    common = set.intersection(*map(set, last)) if last else set()
    if not common:
        return None
    return len({weights[max(common)] for weights in last}) == 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step that a training process completed."""

    time_s: float  # CLOCK_MONOTONIC: one clock for all nodes, as they are all on one host
    step: int
    world: int
    weights: int  # a sum over all bits of the weights after it


class StepLogs:
    """All steps of each node so far, in order of time; ``read`` reads new ones."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder, "*.log")
        self._steps: dict[str, list[Step]] = defaultdict(list)

    def read(self) -> None:
        """Read all lines of ``StepLog`` that were written since the last call."""
        for path, lines in self._tail.read():
            steps = self._steps[path.name.partition(".")[0]]
            for time_s, *numbers in map(str.split, lines):
                steps.append(Step(float(time_s), *map(int, numbers)))
            steps.sort(key=lambda one: one.time_s)

    def of(self, node: str) -> list[Step]:
        """Return the steps that a node's processes completed, in order of time."""
        return self._steps[node]

    @property
    def all(self) -> dict[str, list[Step]]:
        """The steps of all nodes, including those that are gone."""
        return dict(self._steps)
