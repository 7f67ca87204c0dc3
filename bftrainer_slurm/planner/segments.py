"""What each trainer can have, as linear segments: sizes between bends of its curve, by row.

Trainers that are alike are one group. Within a segment, only the numbers of nodes of each class are
open, which is a linear problem. The choice of the segment is a multiple-choice knapsack.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bftrainer_slurm.planner.problem import PlannedTrainer, Problem, Share


@dataclass(frozen=True, slots=True)
class Segment:
    """Sizes from ``least`` to ``most``: worth ``start``, and ``slope`` more for each node.

    It has ``low`` to ``high`` nodes of each row of the supply.
    """

    least: int
    most: int
    start: float
    slope: float
    low: Share
    high: Share

    def worth(self, size: int) -> float:
        """What this many nodes are worth."""
        return self.start + self.slope * (size - self.least)


@dataclass(frozen=True, slots=True)
class Group:
    """Trainers, by their places in the problem, that are alike; the first segment has no nodes."""

    members: tuple[int, ...]
    segments: tuple[Segment, ...]

    @property
    def stake(self) -> float:
        """The difference between the best and the worst that one of them can have."""
        ends = [one.worth(size) for one in self.segments for size in (one.least, one.most)]
        return max(ends) - min(ends)


def groups_of(problem: Problem) -> list[Group]:
    """Return all trainers that want nodes, in groups of those that are alike."""
    alike: dict[object, list[int]] = defaultdict(list)
    for index, one in enumerate(problem.trainers):
        bounds, now = (one.min_nodes, one.max_nodes, one.sizes), problem.now(one)
        costs = (one.rescale_up_s, one.rescale_down_s, one.paused_s, one.start_cost, one.loss_s)
        alike[bounds, now, one.curve, costs, one.barred, one.gpus].append(index)
    firsts = ((tuple(members), problem.trainers[members[0]]) for members in alike.values())
    return [Group(members, tuple(_segments(problem, one))) for members, one in firsts]


def _segments(problem: Problem, trainer: PlannedTrainer) -> Iterator[Segment]:
    """All that it can have. No node migrates: it keeps some of its nodes, or all of them."""
    now, none = problem.now(trainer), (0,) * len(problem.rows)
    total = sum(now)
    yield Segment(0, 0, problem.worth(trainer, 0), 0.0, none, none)
    for room in _rooms(problem, trainer):
        least, most = trainer.min_nodes, min(trainer.max_nodes, sum(room))
        kept = tuple(map(min, now, room))
        shrunk = min(most, sum(kept), total - 1)
        yield from linear(problem, trainer, (least, shrunk), (none, kept))
        if kept != now:
            continue  # it has nodes elsewhere
        if least <= total <= most:
            yield from linear(problem, trainer, (total, total), (kept, kept))
        yield from linear(problem, trainer, (max(least, total + 1), most), (kept, room))


def _rooms(problem: Problem, trainer: PlannedTrainer) -> Iterator[Share]:
    """How many nodes it may have of each row: kinds of hardware do not mix."""
    rows, now, classes = problem.rows, problem.now(trainer), problem.all_classes()
    usable: dict[str, list[int]] = defaultdict(list)
    for number, (row, had) in enumerate(zip(rows, now, strict=True)):
        if had or row.frees is None:
            usable[classes[row.place].hardware].append(number)
    for numbers in usable.values():
        room = [0] * len(rows)
        for number in numbers:
            room[number] = problem.room(trainer, number)
        yield tuple(room)


def linear(
    problem: Problem,
    trainer: PlannedTrainer,
    sizes: tuple[int, int],
    box: tuple[Share, Share],
) -> Iterator[Segment]:
    """Cut these sizes at the curve's points; sizes with none between them are a segment each."""
    corners = [(size, problem.worth(trainer, size)) for size in trainer.corners(*sizes)]
    if trainer.sizes or len(corners) == 1:
        for size, worth in corners:
            yield Segment(size, size, worth, 0.0, *box)
        return
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        yield Segment(x0, x1, y0, (y1 - y0) / (x1 - x0), *box)
