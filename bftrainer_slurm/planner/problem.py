"""A planning problem and a plan: frozen values, and the objective that a plan is judged by.

The objective is equation (16) of the paper by counts, see DESIGN.md, "The planner", or the same
with other rescale costs (``Costs``) and with classes of nodes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from bftrainer_slurm.planner import classes as by_class
from bftrainer_slurm.planner.classes import NodeClass, Share
from bftrainer_slurm.planner.contender import Contender, Costs

__all__ = [
    "Contender",
    "Costs",
    "Count",
    "NodeClass",
    "Plan",
    "PlanMaker",
    "Problem",
    "Share",
    "feasible",
    "value",
]

Count: TypeAlias = int | Share  # how many nodes; where the problem has classes, of each of them


@dataclass(frozen=True, slots=True)
class Problem:
    """Which nodes there are, who wants them, and how far ahead (seconds) a plan looks.

    ``life_s`` is how long each node's hole is expected to last; a node that it leaves out lasts.
    It decides which nodes a trainer gets, not how many. ``classes`` part the pool; where there are
    none, all nodes are alike. ``spares`` is what it is worth that a first contender (of those who
    stand in for others) has no node, a second, and so on, none more than the one before.
    """

    pool: frozenset[str]
    forward_time_s: float
    contenders: tuple[Contender, ...]
    costs: Costs = Costs.PAPER
    life_s: Mapping[str, float] = field(default_factory=dict)
    classes: tuple[NodeClass, ...] = ()
    spares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        held = [node for contender in self.contenders for node in contender.current]
        if len(held) != len(set(held)):
            twice = next(node for node, times in Counter(held).items() if times > 1)
            raise ValueError(f"node {twice} has two trainers")
        if not self.pool.issuperset(held):
            raise ValueError("a trainer's node is not in the pool")
        if not 0 < self.forward_time_s < math.inf:
            raise ValueError("forward_time_s must be above 0 s")
        if len({contender.key for contender in self.contenders}) != len(self.contenders):
            raise ValueError("two trainers have the same key")
        if any(not life_s >= 0 for life_s in self.life_s.values()):
            raise ValueError("life_s must be 0 s or more")
        if self.classes and not self._is_parted():
            raise ValueError("each node of the pool must be in one class, and no other node")
        if not all(0 <= worth < math.inf for worth in self.spares):
            raise ValueError("spares must be worth 0 or more")
        if any(later > worth for worth, later in itertools.pairwise(self.spares)):
            raise ValueError("no spare may be worth more than the one before")

    def _is_parted(self) -> bool:
        parts = [one.nodes for one in self.classes]
        return sum(map(len, parts)) == len(self.pool) and self.pool == frozenset().union(*parts)

    def nodes_of(self, count: Count) -> int:
        """How many nodes these are in all."""
        return count if isinstance(count, int) else sum(count)

    def sizes(self) -> Share:
        """How many nodes there are, by class."""
        return tuple(len(one.nodes) for one in self.classes) or (len(self.pool),)

    def now(self, contender: Contender) -> Share:
        """How many nodes it has, by class."""
        return by_class.share_of(contender.current, self.classes) or (len(contender.current),)

    def worth(self, contender: Contender, count: Count) -> float:
        """What these nodes bring this contender."""
        if isinstance(count, int):
            return contender.worth(count, self.forward_time_s, self.costs)
        now = by_class.share_of(contender.current, self.classes)
        return by_class.worth(contender, now, count, self.classes, self.forward_time_s, self.costs)

    def allows(self, contender: Contender, count: Count) -> bool:
        """Whether this contender can have these nodes in place of what it has."""
        if isinstance(count, int):
            return not self.classes and contender.allows(count)
        if not self.classes or len(count) != len(self.classes):
            return False
        now = by_class.share_of(contender.current, self.classes)
        return by_class.allows(contender, now, count, self.classes)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which nodes each trainer should have, by its key.

    ``status`` is ``optimal`` (proven), ``feasible`` (the time limit came first) or ``greedy``
    (the solver gave nothing usable; ``reason`` says why).
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


def value(problem: Problem, counts: Sequence[Count]) -> float:
    """Return the objective of giving the contenders these many nodes, in their order."""
    pairs = list(zip(problem.contenders, counts, strict=True))
    spare = sum(one.stands_in and problem.nodes_of(count) == 0 for one, count in pairs)
    return sum(problem.spares[:spare]) + sum(problem.worth(one, count) for one, count in pairs)


def feasible(problem: Problem, counts: Sequence[Count]) -> bool:
    """Whether these counts keep every bound, fit into the pool and let no node migrate."""
    if len(counts) != len(problem.contenders) or not all(
        problem.allows(contender, count)
        for contender, count in zip(problem.contenders, counts, strict=True)
    ):
        return False
    shares = [(count,) if isinstance(count, int) else count for count in counts]
    used = map(sum, zip(*shares, strict=True))
    return all(taken <= size for taken, size in zip(used, problem.sizes(), strict=False))
