"""The interface of objectives: what they know of a trainer, and what they return.

Also the two ways in which objectives make a curve from another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bftrainer_slurm.model import ThroughputCurve


class ObjectiveError(ValueError):
    """An objective that is not available; one line says why, and which ones there are."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a trainer's samples have to be done (Unix seconds), and the samples/s it needs.

    0 samples/s: what it needs is not known before it has been measured, on its least nodes.
    """

    due_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What an objective may know of a trainer.

    ``curve`` is in samples/s; ``waited_s`` counts from when it last had a node (0 while it has
    one); ``done`` is the share of its samples that is done, 0 to 1, None if unknown. ``share`` is
    how much of a node one of its nodes is; below 1 it shares nodes with others. ``noise`` is its
    gradient noise scale in batches of one node; infinite: a sample counts the same on any number.
    """

    curve: ThroughputCurve
    min_nodes: int
    max_nodes: int
    weight: float = 1.0
    user: str = ""
    nodes: int = 0
    waited_s: float = 0.0
    done: float | None = None
    share: float = 1.0
    deadline: Deadline | None = None  # None: it has none, or what it needs is not known
    noise: float = math.inf

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError("a trainer needs 1 <= min_nodes <= max_nodes")
        if not 0 < self.weight < math.inf:
            raise ValueError("a trainer's weight must be above 0")
        if self.nodes < 0 or not 0 <= self.waited_s < math.inf:
            raise ValueError("a trainer's nodes and waited_s must be 0 or more")
        if self.done is not None and not 0 <= self.done <= 1:
            raise ValueError("the share that is done must be 0 to 1")
        if not self.noise >= 0:
            raise ValueError("a trainer's noise must be 0 or more")
        if not all(map(math.isfinite, self.curve.values)):
            raise ValueError("a trainer's curve must have finite values")

    @property
    def least(self) -> float:
        """How many nodes, or parts of nodes, its least size takes."""
        return self.min_nodes * self.share


# An objective curve for each trainer, in their order.
Objective: TypeAlias = Callable[[Sequence[Facts]], list[ThroughputCurve]]
# Makes an objective out of another one.
Modifier: TypeAlias = Callable[[Objective], Objective]


def scaled(curve: ThroughputCurve, factor: float) -> ThroughputCurve:
    """Return the curve times a factor."""
    return ThroughputCurve(curve.nodes, tuple(factor * value for value in curve.values))


def redrawn(facts: Facts, curve: ThroughputCurve, value: Callable[[int], float]) -> ThroughputCurve:
    """Return ``value`` at the curve's own sizes, and at enough others for straight lines between.

    These are the least, the most, and the powers of two times the least between them.
    """
    sizes = {*curve.nodes, facts.max_nodes}
    size = facts.min_nodes
    while size < facts.max_nodes:
        sizes.add(size)
        size *= 2
    ordered = tuple(sorted(sizes))
    return ThroughputCurve(ordered, tuple(value(size) if size else 0.0 for size in ordered))
