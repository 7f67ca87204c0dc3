"""A trainer as the planner sees it, and what its sizes are worth under either model of costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from bftrainer_slurm.model import ThroughputCurve


class Costs(Enum):
    """What a rescale costs."""

    PAPER = "paper"  # what the current nodes bring in the time that the rescale takes
    PAUSE = "pause"  # a rescaled trainer stands still at its new size; stopping is free


@dataclass(frozen=True, slots=True)
class PlannedTrainer:
    """A trainer as the planner sees it.

    ``curve`` is its objective curve; ``current`` its nodes now; the rescale costs are seconds
    without progress after it grew or shrank. ``paused_s`` is how long it still stands still from
    its last rescale, ``start_cost`` what being started costs, in units of the curve times
    seconds; both count with ``Costs.PAUSE`` only. ``barred`` names the classes of which it can
    have no node.
    """

    key: str
    min_nodes: int
    max_nodes: int
    current: frozenset[str]
    curve: ThroughputCurve
    rescale_up_s: float
    rescale_down_s: float
    paused_s: float = 0.0
    start_cost: float = 0.0
    barred: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(f"trainer {self.key}: needs 1 <= min_nodes <= max_nodes")
        if not (_is_amount(self.rescale_up_s) and _is_amount(self.rescale_down_s)):
            raise ValueError(
                f"trainer {self.key}: rescale_up_s and rescale_down_s must be 0 s or more"
            )
        if not (_is_amount(self.paused_s) and _is_amount(self.start_cost)):
            raise ValueError(f"trainer {self.key}: paused_s and start_cost must be 0 or more")
        if not all(map(_is_amount, self.curve.values)):
            raise ValueError(f"trainer {self.key}: its curve must have finite values")

    def allows(self, count: int) -> bool:
        """Whether it can have this many nodes."""
        return count == 0 or self.min_nodes <= count <= self.max_nodes

    def worth(self, count: int, forward_s: float, costs: Costs = Costs.PAPER) -> float:
        """What ``count`` nodes bring over the forward time, rescaling paid.

        What rescaling costs depends on whether it stops, shrinks, stays, grows or starts, not on
        how far it does.
        """
        now, rate = len(self.current), self.curve.at(count)
        rescale_s = 0.0
        if count != now:
            rescale_s = self.rescale_up_s if count > now else self.rescale_down_s
        if costs is Costs.PAPER:
            return forward_s * rate - self.curve.at(now) * rescale_s
        if now == 0 and count > 0:
            return forward_s * rate - self.start_cost
        return (forward_s - min(forward_s, max(rescale_s, self.paused_s))) * rate

    def rescale_cost(self, count: int, forward_s: float, costs: Costs = Costs.PAPER) -> float:
        """What it loses by going from its current nodes to ``count``, in units of its curve."""
        return forward_s * self.curve.at(count) - self.worth(count, forward_s, costs)


def _is_amount(number: float) -> bool:
    return 0 <= number < math.inf
