"""Why a plan gives a trainer so many nodes: what other sizes are worth, and cost others. Pure.

Worth is in units of the objective times seconds, over the time that the plan looks ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.planner.lagrangian import Relaxation
from bftrainer_slurm.planner.limit import Limit
from bftrainer_slurm.planner.problem import Plan, PlannedTrainer, Problem
from bftrainer_slurm.planner.segments import groups_of

_ROUNDING = 1e-4  # share of the stake: plans are the best to within less


@dataclass(frozen=True, slots=True)
class Size:
    """A size: the objective's rate, the cost of rescaling, and the worth after that cost."""

    nodes: int
    rate: float
    rescale: float
    worth: float


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a trainer has ``nodes`` in a plan; ``had`` are those that it had before.

    It has ``gpus`` GPUs of each of them; 0: whole nodes. Of the ``pool``
    it may have ``usable`` nodes, and on ``free`` more of them trainers leave it room. ``sizes``
    ascend and have 0, its bounds, its planned size and the ones beside it. ``better`` is the size
    that was examined in its place, worth ``gain`` more. ``loss`` is the least that one other
    trainer would lose by giving up the nodes for it (None if no single trainer can make so much
    room). ``price`` is what a node, or this part of one, is worth to others in the planner's bound.
    """

    key: str
    had: int
    nodes: int
    gpus: int
    least: int
    most: int
    limit: Limit
    forward_s: float
    pool: int
    usable: int
    free: int
    sizes: tuple[Size, ...]
    better: int | None = None
    gain: float | None = None
    loss: float | None = None
    price: float = 0.0


def reasons_of(problem: Problem, plan: Plan) -> dict[str, Reasons]:
    """Return the reasons for each trainer of a plan for this problem, by key."""
    if not problem.trainers:
        return {}
    market = _Market(problem, plan)
    return {one.key: _Case(market, one).reasons() for one in problem.trainers}


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes that a trainer may have, and those of them that have room for one more element.

    An element takes so many ``units`` of one of them, see ``NodeClass.units_of``.
    """

    usable: frozenset[str]
    roomy: frozenset[str]
    units: int


def _union(parts: Sequence[_Nodes]) -> _Nodes:
    none = frozenset[str]()
    usable, roomy = (one.usable for one in parts), (one.roomy for one in parts)
    units = max((one.units for one in parts), default=1)
    return _Nodes(none.union(*usable), none.union(*roomy), units)


class _Market:
    """Facts about all trainers of a plan, computed once."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        self._trainers = {one.key: one for one in problem.trainers}
        relaxation = Relaxation(groups_of(problem), problem)
        self.unit_price = float(relaxation.common_price().prices[0] / relaxation.per_unit()[0])
        self._left = problem.left_by(plan.assignment[one.key] for one in problem.trainers)
        self._fitting: dict[tuple[int, int], _Nodes] = {}
        self._found: dict[tuple[frozenset[str], str | None, int], _Nodes] = {}
        self._losses: dict[int, list[tuple[float, str]]] = {}

    def _units(self, trainer: PlannedTrainer, node: str) -> int:
        """What an element of this trainer takes of a node, see ``NodeClass.units_of``."""
        return self.problem.class_of[node].units_of(trainer.gpus)

    def nodes(self, trainer: PlannedTrainer) -> _Nodes:
        """Return the nodes that it may have.

        They are of one kind of hardware (its own or the one with most nodes), and of no barred
        class.
        """
        own, problem = self.plan.assignment[trainer.key], self.problem
        kind = next((problem.class_of[node].hardware for node in own), None)
        key = (trainer.barred, kind, trainer.gpus)
        if key not in self._found:
            kinds: dict[str | None, list[_Nodes]] = {}
            for place, part in enumerate(problem.all_classes()):
                fit = self._fit(place, part.units_of(trainer.gpus))
                if fit.usable and problem.may_use(trainer, part):
                    kinds.setdefault(part.hardware, []).append(fit)
            unions = {one: _union(parts) for one, parts in kinds.items()}
            most = max(unions.values(), key=lambda one: len(one.usable), default=_union([]))
            self._found[key] = unions.get(kind, most)
        return self._found[key]

    def _fit(self, place: int, units: int) -> _Nodes:
        """Return the nodes of a class that an element of so many units fits on."""
        if (place, units) not in self._fitting:
            part = self.problem.all_classes()[place]
            usable = (node for node in part.nodes if self.problem.units_on(node) >= units)
            roomy = (node for node in part.nodes if self._left[node] >= units)
            self._fitting[place, units] = _Nodes(frozenset(usable), frozenset(roomy), units)
        return self._fitting[place, units]

    def loss(self, trainer: PlannedTrainer, nodes: _Nodes, missing: int) -> float | None:
        """Return the least that one other trainer loses by giving up so many of these nodes."""
        own = self.plan.assignment[trainer.key]
        if missing not in self._losses:
            losses = (
                (self._loss(one, missing), one.key)
                for one in self.problem.trainers
                if len(self.plan.assignment[one.key]) >= missing
            )
            self._losses[missing] = sorted(losses)
        for loss, key in self._losses[missing]:
            given_up = self.plan.assignment[key] & nodes.usable
            if key != trainer.key and len(given_up) >= missing:
                other = self._trainers[key]
                makes_room = (
                    self._left[node] + self._units(other, node) >= self._units(trainer, node)
                    for node in given_up - own - nodes.roomy
                )
                if sum(makes_room) >= missing:
                    return loss
        return None

    def _loss(self, trainer: PlannedTrainer, missing: int) -> float:
        nodes = len(self.plan.assignment[trainer.key])
        left = trainer.most_within(nodes - missing)
        return self.problem.worth(trainer, nodes) - self.problem.worth(trainer, left)


class _Case:
    """One trainer in a plan."""

    def __init__(self, market: _Market, trainer: PlannedTrainer) -> None:
        self._market, self._trainer, self._problem = market, trainer, market.problem
        own = market.plan.assignment[trainer.key]
        self._nodes, self._may_have = len(own), market.nodes(trainer)
        usable, roomy = self._may_have.usable, self._may_have.roomy
        self._usable, self._free = len(usable), len(roomy) - len(roomy & own)

    def reasons(self) -> Reasons:
        """Return why it has so many nodes."""
        limit, better = self._limit()
        gain = loss = None
        if better is not None:
            gain = self._worth(better) - self._worth(self._nodes)
            if limit is Limit.OTHERS:
                missing = better - self._nodes - self._free
                loss = self._market.loss(self._trainer, self._may_have, missing)
        return Reasons(
            key=self._trainer.key,
            had=len(self._trainer.current),
            nodes=self._nodes,
            gpus=self._trainer.gpus,
            least=self._trainer.min_nodes,
            most=self._trainer.max_nodes,
            limit=limit,
            forward_s=self._problem.forward_time_s,
            pool=len(self._problem.pool),
            usable=self._usable,
            free=self._free,
            sizes=tuple(map(self._size, self._shown(better))),
            better=better,
            gain=gain,
            loss=loss,
            price=self._market.unit_price * self._may_have.units,
        )

    def _limit(self) -> tuple[Limit, int | None]:
        """Return what keeps it from more nodes, and the size that it would have otherwise."""
        one, nodes = self._trainer, self._nodes
        least, reach = max(one.min_nodes, nodes + 1), min(one.max_nodes, self._usable)
        if nodes >= one.max_nodes:
            return Limit.MOST, None
        larger = one.corners(least, reach)
        if not larger:
            return Limit.POOL, None
        best = self._best(larger)
        if not self._is_better(best):
            faster = one.rate(best) > one.rate(nodes) * (1 + _ROUNDING)
            return (Limit.COST if faster else Limit.NO_GAIN), best
        within = one.corners(least, min(reach, nodes + self._free))
        if within and self._is_better(at_once := self._best(within)):
            return Limit.UNPROVEN, at_once
        return Limit.OTHERS, larger[0] if self._is_better(larger[0]) else best

    def _best(self, sizes: Sequence[int]) -> int:
        """Return the one of these sizes that brings most, the least of several."""
        return max(sizes, key=lambda size: (self._worth(size), -size))

    def _is_better(self, size: int) -> bool:
        stake = self._problem.forward_time_s * max(self._trainer.curve.values)
        return self._worth(size) - self._worth(self._nodes) > _ROUNDING * stake

    def _shown(self, better: int | None) -> list[int]:
        one, nodes = self._trainer, self._nodes
        more = one.corners(max(one.min_nodes, nodes + 1), one.max_nodes)
        beside = (one.most_within(max(0, nodes - 1)), *more[:1])
        return sorted({0, one.min_nodes, *beside, nodes, one.max_nodes, better or 0})

    def _size(self, nodes: int) -> Size:
        one, problem = self._trainer, self._problem
        cost = problem.rescale_cost(one, nodes)
        return Size(nodes, one.rate(nodes), cost, self._worth(nodes))

    def _worth(self, nodes: int) -> float:
        return self._problem.worth(self._trainer, nodes)
