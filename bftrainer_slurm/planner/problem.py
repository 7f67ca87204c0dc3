"""A planning problem and a plan: frozen values, and the objective that a plan is judged by.

The objective is equation (16) of the paper by counts, see docs/internals/planner.md, or the same
with other rescale costs (``Costs``).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Protocol, TypeAlias

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.planner.supply import ROUNDING, Row, rows_of
from bftrainer_slurm.sizes import Sizes

Share: TypeAlias = tuple[int, ...]  # how many elements of each row of the supply


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes of one kind of hardware that the same trainers cannot have.

    If ``gpus`` is not 0, each node has so many, and trainers may have a part of it.
    """

    name: str
    nodes: frozenset[str]
    hardware: str = ""
    gpus: int = 0

    def units_of(self, gpus: int) -> int:
        """What an element takes of a node if it asks for so many GPUs; 0: the whole node.

        A unit is a GPU, or the node if it is not divided: one trainer has it, or none.
        """
        return (gpus or self.gpus) if self.gpus else 1


class Costs(Enum):
    """What a rescale costs."""

    PAPER = "paper"  # the value of the current nodes over the time of the rescale
    PAUSE = "pause"  # a rescaled trainer stands still at its new size; stopping takes no time


@dataclass(frozen=True, slots=True)
class PlannedTrainer:
    """A trainer as the planner sees it.

    ``curve`` is its objective curve; ``current`` its nodes now; the rescale costs are seconds
    without progress after it grew or shrank. ``paused_s`` is how long it still stands still after
    its last rescale, ``start_cost`` is the cost of a start, in units of the curve times seconds;
    both count with ``Costs.PAUSE`` only. Any change of its nodes loses ``loss_s`` seconds of
    what it trains on them, as it goes on from further back. ``barred`` names the classes of which
    it can have no node. ``sizes``, if there are any, are the only numbers of nodes that it can
    train on, from ``min_nodes`` to ``max_nodes``. It has ``gpus`` GPUs of each of its nodes, and
    leaves the others; 0 means whole nodes.
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
    loss_s: float = 0.0
    barred: frozenset[str] = frozenset()
    sizes: tuple[int, ...] = ()
    gpus: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(f"trainer {self.key}: needs 1 <= min_nodes <= max_nodes")
        if not (_is_amount(self.rescale_up_s) and _is_amount(self.rescale_down_s)):
            raise ValueError(
                f"trainer {self.key}: rescale_up_s and rescale_down_s must be 0 s or more"
            )
        if not all(map(_is_amount, (self.paused_s, self.start_cost, self.loss_s))):
            raise ValueError(
                f"trainer {self.key}: paused_s, start_cost and loss_s must be 0 or more"
            )
        if self.gpus < 0:
            raise ValueError(f"trainer {self.key}: gpus must be 0 (whole nodes) or more")
        if not all(map(_is_amount, self.curve.values)):
            raise ValueError(f"trainer {self.key}: its curve must have finite values")
        if self.sizes and not self._ascends():
            raise ValueError(f"trainer {self.key}: sizes must ascend from min_nodes to max_nodes")

    def _ascends(self) -> bool:
        ends = (self.sizes[0], self.sizes[-1]) == (self.min_nodes, self.max_nodes)
        return ends and all(a < b for a, b in itertools.pairwise(self.sizes))

    def allows(self, count: int) -> bool:
        """Whether it can have this many nodes."""
        return count == self.most_within(count)

    def most_within(self, count: int) -> int:
        """The most nodes that it can have of this many."""
        if self.sizes:
            return Sizes(self.sizes).up_to(count)
        return min(count, self.max_nodes) if count >= self.min_nodes else 0

    def rate(self, count: int) -> float:
        """The objective's value with so many nodes."""
        return self.curve.at(count)

    def corners(self, least: int, most: int) -> list[int]:
        """Its sizes from ``least`` to ``most``; of a whole range the ends, and bends of its curve.

        Both numbers are within its bounds, or ``least`` is above ``most``.
        """
        if self.sizes:
            return [size for size in self.sizes if least <= size <= most]
        inner = (size for size in self.curve.nodes if least < size < most)
        return sorted({least, *inner, most}) if least <= most else []

    def worth(self, count: int, forward_s: float, costs: Costs) -> float:
        """The worth of ``count`` nodes over the forward time, less the cost of rescaling.

        That cost depends on whether it stops, shrinks, stays, grows or starts, not by how much.
        """
        now, rate = len(self.current), self.rate(count)
        rescale_s = loss_s = 0.0
        if count != now:
            rescale_s = self.rescale_up_s if count > now else self.rescale_down_s
            loss_s = self.loss_s
        if costs is Costs.PAPER:
            return forward_s * rate - self._lost(rescale_s + loss_s)
        if now == 0 and count > 0:
            return forward_s * rate - self.start_cost
        pause_s = min(forward_s, max(rescale_s, self.paused_s))
        return (forward_s - pause_s) * rate - self._lost(loss_s)

    def _lost(self, seconds: float) -> float:
        """What it would have trained in this time on its nodes."""
        return self.rate(len(self.current)) * seconds if seconds and self.current else 0.0


@dataclass(frozen=True)
class Problem:
    """The nodes, the trainers that want them, and how far ahead (seconds) a plan looks.

    ``life_s`` is how long each node's hole is expected to last; a node without a value lasts. It
    decides which nodes a trainer gets, not how many. ``since_s`` is since when (Unix seconds) each
    node is its trainer's: of nodes that last as long, it keeps those that it has had longest.
    ``classes`` divide the pool; without classes all nodes are alike. ``free`` is how many GPUs of
    a node no ordinary job has; if it is not named, all of its class. ``switch_of`` names the switch
    or block that each node is under, if that is known; of whole nodes each trainer gets those under
    few switches. ``needs`` has what deadlines need, by trainer; the curves have them already.
    """

    pool: frozenset[str]
    forward_time_s: float
    trainers: tuple[PlannedTrainer, ...]
    costs: Costs = Costs.PAPER
    life_s: Mapping[str, float] = field(default_factory=dict)
    since_s: Mapping[str, float] = field(default_factory=dict)
    classes: tuple[NodeClass, ...] = ()
    free: Mapping[str, int] = field(default_factory=dict)
    switch_of: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, Need] = field(default_factory=dict)

    def __post_init__(self) -> None:
        now = [node for trainer in self.trainers for node in trainer.current]
        if len(now) != len(set(now)) and not self.in_parts:
            twice = next(node for node, times in Counter(now).items() if times > 1)
            raise ValueError(f"node {twice} has two trainers")
        if not self.pool.issuperset(now):
            raise ValueError("a trainer's node is not in the pool")
        if not 0 < self.forward_time_s < math.inf:
            raise ValueError("forward_time_s must be above 0 s")
        if len({trainer.key for trainer in self.trainers}) != len(self.trainers):
            raise ValueError("two trainers have the same key")
        if any(not life_s >= 0 for life_s in self.life_s.values()):
            raise ValueError("life_s must be 0 s or more")
        if self.classes and not self._is_divided():
            raise ValueError("each node of the pool must be in one class, and no other node")
        has = {node: part.gpus for part in self.classes for node in part.nodes}
        if any(not 0 <= count <= has.get(node, 0) for node, count in self.free.items()):
            raise ValueError("free must have 0 to as many GPUs of a node as its class has")
        if min(self.left.values(), default=0) < 0:
            node = min(self.left, key=lambda one: (self.left[one] >= 0, one))
            raise ValueError(f"trainers have more GPUs of node {node} than are free")

    @cached_property
    def class_of(self) -> Mapping[str, NodeClass]:
        """The class of each node."""
        return {node: part for part in self.all_classes() for node in part.nodes}

    def units_on(self, node: str) -> int:
        """What no ordinary job has of a node, see ``NodeClass.units_of``."""
        gpus = self.class_of[node].gpus
        return self.free.get(node, gpus) if gpus else 1

    @cached_property
    def left(self) -> Mapping[str, int]:
        """What neither ordinary jobs nor trainers have of each node."""
        return self.left_by(one.current for one in self.trainers)

    def left_by(self, nodes: Iterable[frozenset[str]]) -> dict[str, int]:
        """What would be left of each node if the trainers had these, in their order."""
        left = {node: self.units_on(node) for node in self.class_of}
        for trainer, its in zip(self.trainers, nodes, strict=True):
            for node in its:
                left[node] -= self.class_of[node].units_of(trainer.gpus)
        return left

    @property
    def in_parts(self) -> bool:
        """Whether some nodes are divided, so that several trainers may have parts of one."""
        return any(part.gpus for part in self.classes)

    def _is_divided(self) -> bool:
        parts = [one.nodes for one in self.classes]
        return sum(map(len, parts)) == len(self.pool) and self.pool == frozenset().union(*parts)

    def all_classes(self) -> tuple[NodeClass, ...]:
        """The classes; a single one of all nodes if they are alike."""
        return self.classes or (NodeClass("", self.pool),)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The supply: a row a class; of divided nodes one a size of elements, and one a kind of
        those there now.

        A share says how many elements a trainer has of each row's class and size: new ones, and
        those that it keeps.
        """
        sizes = {one.gpus for one in self.trainers}
        has: dict[str, list[int]] = defaultdict(list)
        for one in sorted(self.trainers, key=lambda one: one.gpus) if self.in_parts else ():
            for node in one.current:
                has[node].append(one.gpus)
        found: list[Row] = []
        for place, part in enumerate(self.all_classes()):
            if not part.gpus:
                found.append(Row(place, 0, len(part.nodes), len(part.nodes)))
                continue
            alike: dict[tuple[int, tuple[int, ...]], list[str]] = defaultdict(list)
            for node in part.nodes:
                alike[self.left[node], tuple(has.get(node, ()))].append(node)
            units = part.units_of
            states = [(left, [*map(units, its)], nodes) for (left, its), nodes in alike.items()]
            found += rows_of(place, sorted(set(map(units, sizes))), states)
        return tuple(found)

    @cached_property
    def _numbers(self) -> Mapping[tuple[object, ...], int]:
        """Where the rows are: of new elements by class, units and whether they are for full nodes;
        of those there now by units and node.
        """
        found: dict[tuple[object, ...], int] = {}
        for at, row in enumerate(self.rows):
            if row.frees is None:
                found[row.place, row.gpus, row.full] = at
            found |= {(row.gpus, node): at for node in row.nodes}
        return found

    @cached_property
    def _now(self) -> Mapping[str, Share]:
        return {one.key: self.share(one.current, one) for one in self.trainers}

    def room(self, trainer: PlannedTrainer, number: int) -> int:
        """How many elements of a row it can have if it has all for itself: new ones, or its own."""
        row = self.rows[number]
        part = self.all_classes()[row.place]
        if part.name in trainer.barred:
            return 0
        if not part.gpus:
            return 0 if trainer.gpus else row.room
        if row.gpus != part.units_of(trainer.gpus):
            return 0
        if row.frees is not None:
            return self._now[trainer.key][number]
        own = trainer.current & part.nodes
        return row.room - sum((self.left[node] < row.gpus) == row.full for node in own)

    def may_use(self, trainer: PlannedTrainer, part: NodeClass) -> bool:
        """Whether it may have nodes of this class, or parts of them."""
        return part.name not in trainer.barred and (part.gpus > 0 or not trainer.gpus)

    def now(self, trainer: PlannedTrainer) -> Share:
        """How many nodes it has, by the supply's rows."""
        return self._now[trainer.key]

    def share(self, nodes: frozenset[str], trainer: PlannedTrainer) -> Share:
        """Return how many of these nodes are of each row, if this trainer has them."""
        share = [0] * len(self.rows)
        for place, part in enumerate(self.all_classes()):
            here = nodes & part.nodes
            if not part.gpus:
                share[self._numbers[place, 0, False]] = len(here)
                continue
            units = part.units_of(trainer.gpus)
            for node in here & trainer.current:
                share[self._numbers[units, node]] += 1
            for node in here - trainer.current:
                share[self._numbers[place, units, self.left[node] < units]] += 1
        return tuple(share)

    def nodes_of(self, trainer: PlannedTrainer, number: int) -> list[str]:
        """Return those of its nodes that are of this row now."""
        row = self.rows[number]
        here = trainer.current & self.all_classes()[row.place].nodes
        return [node for node in here if self._numbers.get((row.gpus, node), number) == number]

    def worth(self, trainer: PlannedTrainer, count: int) -> float:
        """The worth of so many nodes, of any class, for this trainer."""
        return trainer.worth(count, self.forward_time_s, self.costs)

    def rescale_cost(self, trainer: PlannedTrainer, count: int) -> float:
        """What it loses by going from its current nodes to ``count``, in units of its curve."""
        return self.forward_time_s * trainer.rate(count) - self.worth(trainer, count)

    def allows(self, trainer: PlannedTrainer, share: Share) -> bool:
        """Whether this trainer can have these nodes in place of its present ones.

        They must be of one kind of hardware and of no barred class, and no node may
        migrate: the trainer keeps a part of its nodes, or all of them.
        """
        classes = self.all_classes()
        if len(share) != len(self.rows) or min(share) < 0 or not trainer.allows(sum(share)):
            return False
        used = [row for row, count in zip(self.rows, share, strict=True) if count]
        if len({classes[row.place].hardware for row in used}) > 1:
            return False
        if any(count and count > self.room(trainer, at) for at, count in enumerate(share)):
            return False
        pairs = list(zip(self.now(trainer), share, strict=True))
        return all(had <= has for had, has in pairs) or all(had >= has for had, has in pairs)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which nodes each trainer should have, by its key.

    ``status`` is ``optimal`` (proven), ``feasible`` (the time limit came first, or the solver
    failed with a plan in hand) or ``greedy`` (the solver gave nothing usable). ``reason`` says why.
    ``bound`` is what no plan is worth more than, if the best counts found no room on the nodes.
    """

    assignment: Mapping[str, frozenset[str]]
    objective: float
    solve_s: float
    status: str
    reason: str = ""
    bound: float | None = None


class PlanMaker(Protocol):
    """Answers planning problems."""

    def plan(self, problem: Problem) -> Plan:
        """Return a checked plan."""


def worths(problem: Problem, shares: Sequence[Share]) -> list[float]:
    """Return what these shares are worth for the trainers, in their order."""
    pairs = zip(problem.trainers, shares, strict=True)
    return [problem.worth(trainer, sum(share)) for trainer, share in pairs]


def value(problem: Problem, shares: Sequence[Share]) -> float:
    """Return the objective of giving the trainers these many nodes, in their order."""
    return sum(worths(problem, shares))


def feasible(problem: Problem, shares: Sequence[Share]) -> bool:
    """Whether these shares keep every bound, fit into the pool and let no node migrate."""
    if len(shares) != len(problem.trainers) or not all(
        problem.allows(trainer, share)
        for trainer, share in zip(problem.trainers, shares, strict=True)
    ):
        return False
    rows = problem.rows
    counts = list(map(sum, zip(*shares, strict=True))) or [0] * len(rows)
    taken = (
        sum(row.taken_by(other) * count for other, count in zip(rows, counts, strict=True))
        for row in rows
    )
    return all(used <= row.amount + ROUNDING for used, row in zip(taken, rows, strict=True))


def stops_a_trainer(problem: Problem, plan: Plan) -> bool:
    """Whether a plan takes all nodes of a trainer that has some."""
    return any(one.current and not plan.assignment[one.key] for one in problem.trainers)


def gpus_of(problem: Problem, plan: Plan) -> tuple[int, int] | None:
    """Return how many GPUs of divided nodes no ordinary job has, and how many trainers get.

    None: no nodes are divided.
    """
    divided = [part for part in problem.classes if part.gpus]
    if not divided:
        return None
    has = sum(problem.units_on(node) for part in divided for node in part.nodes)
    ours = sum(
        len(plan.assignment[one.key] & part.nodes) * part.units_of(one.gpus)
        for part in divided
        for one in problem.trainers
    )
    return has, ours


def _is_amount(number: float) -> bool:
    return 0 <= number < math.inf
