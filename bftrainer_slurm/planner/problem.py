"""A planning problem and a plan: frozen values, and the objective that a plan is judged by.

The objective is equation (16) of the paper by counts, see docs/planner.md, or the same with other
rescale costs (``Costs``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bftrainer_slurm.planner.classes import NodeClass, Share
from bftrainer_slurm.planner.trainer import Costs, PlannedTrainer

__all__ = [
    "Costs",
    "NodeClass",
    "Plan",
    "PlanMaker",
    "PlannedTrainer",
    "Problem",
    "Share",
    "feasible",
    "value",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Which nodes there are, who wants them, and how far ahead (seconds) a plan looks.

    ``life_s`` is how long each node's hole is expected to last; a node that it leaves out lasts.
    It decides which nodes a trainer gets, not how many. ``classes`` divide the pool; where there
    are none, all nodes are alike.
    """

    pool: frozenset[str]
    forward_time_s: float
    trainers: tuple[PlannedTrainer, ...]
    costs: Costs = Costs.PAPER
    life_s: Mapping[str, float] = field(default_factory=dict)
    classes: tuple[NodeClass, ...] = ()

    def __post_init__(self) -> None:
        held = [node for trainer in self.trainers for node in trainer.current]
        if len(held) != len(set(held)):
            twice = next(node for node, times in Counter(held).items() if times > 1)
            raise ValueError(f"node {twice} has two trainers")
        if not self.pool.issuperset(held):
            raise ValueError("a trainer's node is not in the pool")
        if not 0 < self.forward_time_s < math.inf:
            raise ValueError("forward_time_s must be above 0 s")
        if len({trainer.key for trainer in self.trainers}) != len(self.trainers):
            raise ValueError("two trainers have the same key")
        if any(not life_s >= 0 for life_s in self.life_s.values()):
            raise ValueError("life_s must be 0 s or more")
        if self.classes and not self._is_divided():
            raise ValueError("each node of the pool must be in one class, and no other node")

    def _is_divided(self) -> bool:
        parts = [one.nodes for one in self.classes]
        return sum(map(len, parts)) == len(self.pool) and self.pool == frozenset().union(*parts)

    def all_classes(self) -> tuple[NodeClass, ...]:
        """The classes; one of all nodes where they are alike."""
        return self.classes or (NodeClass("", self.pool),)

    def sizes(self) -> Share:
        """How many nodes there are, by class."""
        return tuple(len(one.nodes) for one in self.all_classes())

    def now(self, trainer: PlannedTrainer) -> Share:
        """How many nodes it has, by class."""
        if not self.classes:
            return (len(trainer.current),)
        return tuple(len(trainer.current & one.nodes) for one in self.classes)

    def worth(self, trainer: PlannedTrainer, count: int) -> float:
        """What so many nodes bring this trainer, of whatever class."""
        return trainer.worth(count, self.forward_time_s, self.costs)

    def allows(self, trainer: PlannedTrainer, share: Share) -> bool:
        """Whether this trainer can have these nodes in place of what it has.

        They are of one kind of hardware and of no class that it is barred from, and none of its
        nodes migrates: it keeps a part of them or all of them.
        """
        classes = self.all_classes()
        if len(share) != len(classes) or min(share) < 0 or not trainer.allows(sum(share)):
            return False
        used = [one for one, count in zip(classes, share, strict=True) if count]
        if len({one.hardware for one in used}) > 1:
            return False
        if any(one.name in trainer.barred for one in used):
            return False
        pairs = list(zip(self.now(trainer), share, strict=True))
        return all(had <= has for had, has in pairs) or all(had >= has for had, has in pairs)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which nodes each trainer should have, by its key.

    ``status`` is ``optimal`` (proven), ``feasible`` (the time limit came first, or the solver
    failed with a plan in hand) or ``greedy`` (the solver gave nothing usable). ``reason`` says why.
    """

    assignment: Mapping[str, frozenset[str]]
    objective: float
    solve_s: float
    status: str
    reason: str = ""


class PlanMaker(Protocol):
    """Who answers planning problems."""

    def plan(self, problem: Problem) -> Plan:
        """Return a plan that was checked."""


def value(problem: Problem, shares: Sequence[Share]) -> float:
    """Return the objective of giving the trainers these many nodes, in their order."""
    pairs = zip(problem.trainers, shares, strict=True)
    return sum(problem.worth(trainer, sum(share)) for trainer, share in pairs)


def feasible(problem: Problem, shares: Sequence[Share]) -> bool:
    """Whether these shares keep every bound, fit into the pool and let no node migrate."""
    if len(shares) != len(problem.trainers) or not all(
        problem.allows(trainer, share)
        for trainer, share in zip(problem.trainers, shares, strict=True)
    ):
        return False
    used = map(sum, zip(*shares, strict=True))
    return all(taken <= size for taken, size in zip(used, problem.sizes(), strict=False))
