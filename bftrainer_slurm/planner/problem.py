"""A planning problem and a plan: frozen values, and the objective that a plan is judged by.

The objective is equation (16) of the paper by counts, see DESIGN.md, "The planner", or the same
with other rescale costs (``Costs``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from bftrainer_slurm.model import ThroughputCurve


class Costs(Enum):
    """What a rescale costs."""

    PAPER = "paper"  # what the current nodes bring in the time that the rescale takes
    PAUSE = "pause"  # a rescaled trainer stands still at its new size; stopping is free


@dataclass(frozen=True, slots=True)
class Contender:
    """A trainer as the planner sees it.

    ``curve`` is its objective curve; ``current`` its nodes now; the rescale costs are seconds
    without progress after it grew or shrank. ``paused_s`` is how long it still stands still from
    its last rescale, ``start_premium`` what being started costs later, in units of the curve times
    seconds; both count with ``Costs.PAUSE`` only.
    """

    key: str
    min_nodes: int
    max_nodes: int
    current: frozenset[str]
    curve: ThroughputCurve
    rescale_up_s: float
    rescale_down_s: float
    paused_s: float = 0.0
    start_premium: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(f"trainer {self.key}: needs 1 <= min_nodes <= max_nodes")
        if not (_is_amount(self.rescale_up_s) and _is_amount(self.rescale_down_s)):
            raise ValueError(
                f"trainer {self.key}: rescale_up_s and rescale_down_s must be 0 s or more"
            )
        if not (_is_amount(self.paused_s) and _is_amount(self.start_premium)):
            raise ValueError(f"trainer {self.key}: paused_s and start_premium must be 0 or more")
        if not all(map(_is_amount, self.curve.values)):
            raise ValueError(f"trainer {self.key}: its curve must have finite values")

    def allows(self, count: int) -> bool:
        """Whether it can have this many nodes."""
        return count == 0 or self.min_nodes <= count <= self.max_nodes

    def worth(self, count: int, forward_s: float, costs: Costs = Costs.PAPER) -> float:
        """What ``count`` nodes bring over the forward time, rescaling paid."""
        return forward_s * self.curve.at(count) - self.rescale_cost(count, forward_s, costs)

    def rescale_cost(self, count: int, forward_s: float, costs: Costs = Costs.PAPER) -> float:
        """What it loses by going from its current nodes to ``count``, in units of its curve."""
        now = len(self.current)
        if costs is Costs.PAUSE:
            return self._loss_while_paused(count, forward_s)
        if count == now:
            return 0.0
        seconds = self.rescale_up_s if count > now else self.rescale_down_s
        return self.curve.at(now) * seconds

    def _loss_while_paused(self, count: int, forward_s: float) -> float:
        now = len(self.current)
        if count == 0:
            return 0.0
        if now == 0:
            return self.start_premium
        rescale_s = 0.0
        if count != now:
            rescale_s = self.rescale_up_s if count > now else self.rescale_down_s
        return min(forward_s, max(rescale_s, self.paused_s)) * self.curve.at(count)


@dataclass(frozen=True, slots=True)
class Problem:
    """Which nodes there are, who wants them, and how far ahead (seconds) a plan looks.

    ``life_s`` is how long each node's hole is expected to last; a node that it leaves out lasts.
    It decides which nodes a trainer gets, not how many.
    """

    pool: frozenset[str]
    forward_time_s: float
    contenders: tuple[Contender, ...]
    costs: Costs = Costs.PAPER
    life_s: Mapping[str, float] = field(default_factory=dict)

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

    def worth(self, contender: Contender, count: int) -> float:
        """What ``count`` nodes of the pool bring this contender."""
        return contender.worth(count, self.forward_time_s, self.costs)


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


def value(problem: Problem, counts: Sequence[int]) -> float:
    """Return the objective of giving the contenders these many nodes, in their order."""
    return sum(
        problem.worth(contender, count)
        for contender, count in zip(problem.contenders, counts, strict=True)
    )


def feasible(problem: Problem, counts: Sequence[int]) -> bool:
    """Whether these counts keep every bound and fit into the pool."""
    return (
        len(counts) == len(problem.contenders)
        and sum(counts) <= len(problem.pool)
        and all(
            contender.allows(count)
            for contender, count in zip(problem.contenders, counts, strict=True)
        )
    )


def _is_amount(number: float) -> bool:
    return 0 <= number < math.inf
