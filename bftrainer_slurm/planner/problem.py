"""A planning problem and a plan: frozen values, and the objective that a plan is judged by.

The objective is equation (16) of the paper by counts, see DESIGN.md, "The planner".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bftrainer_slurm.model import ThroughputCurve


@dataclass(frozen=True, slots=True)
class Contender:
    """A trainer as the planner sees it.

    ``curve`` is its objective curve; ``current`` its nodes now; the rescale costs are seconds
    without progress after it grew or shrank.
    """

    key: str
    min_nodes: int
    max_nodes: int
    current: frozenset[str]
    curve: ThroughputCurve
    rescale_up_s: float
    rescale_down_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(f"trainer {self.key}: needs 1 <= min_nodes <= max_nodes")
        if not (_is_amount(self.rescale_up_s) and _is_amount(self.rescale_down_s)):
            raise ValueError(
                f"trainer {self.key}: rescale_up_s and rescale_down_s must be 0 s or more"
            )
        if not all(map(_is_amount, self.curve.values)):
            raise ValueError(f"trainer {self.key}: its curve must have finite values")

    def allows(self, count: int) -> bool:
        """Whether it can have this many nodes."""
        return count == 0 or self.min_nodes <= count <= self.max_nodes

    def rescale_cost(self, count: int) -> float:
        """What it loses by going from its current nodes to ``count``, in units of its curve."""
        now = len(self.current)
        if count == now:
            return 0.0
        seconds = self.rescale_up_s if count > now else self.rescale_down_s
        return self.curve.at(now) * seconds

    def worth(self, count: int, forward_time_s: float) -> float:
        """What ``count`` nodes bring over the forward time, rescaling paid."""
        return forward_time_s * self.curve.at(count) - self.rescale_cost(count)


@dataclass(frozen=True, slots=True)
class Problem:
    """Which nodes there are, who wants them, and how far ahead (seconds) a plan looks."""

    pool: frozenset[str]
    forward_time_s: float
    contenders: tuple[Contender, ...]

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
        contender.worth(count, problem.forward_time_s)
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
