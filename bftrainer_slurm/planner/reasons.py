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

    It may have ``usable`` nodes of the ``pool``, and no trainer has ``free`` of them. ``sizes``
    ascend and have 0, its bounds, its planned size and the ones beside it. ``better`` is the size
    that was examined in its place, worth ``gain`` more. ``loss`` is the least that one other
    trainer would lose by giving up the nodes for it (None if no single trainer has so many).
    ``price`` is what a node is worth to others in the planner's bound.
    """

    key: str
    had: int
    nodes: int
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


class _Market:
    """Facts about all trainers of a plan, computed once."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        relaxation = Relaxation(groups_of(problem), problem)
        self.price = float(relaxation.common_price()[0])
        self._taken = frozenset[str]().union(*plan.assignment.values())
        self._usable: dict[tuple[frozenset[str], str | None], tuple[frozenset[str], int]] = {}
        self._losses: dict[int, list[tuple[float, str]]] = {}

    def usable(self, trainer: PlannedTrainer) -> tuple[frozenset[str], int]:
        """Return the nodes that it may have, and how many of them no trainer has.

        They are of one kind of hardware (its own or the one with most nodes), and of no barred
        class.
        """
        own = self.plan.assignment[trainer.key]
        classes = [part for part in self.problem.all_classes() if part.name not in trainer.barred]
        kind = next((part.hardware for part in classes if part.nodes & own), None)
        key = (trainer.barred, kind)
        if key not in self._usable:
            kinds: dict[str, set[str]] = {}
            for part in classes:
                kinds.setdefault(part.hardware, set()).update(part.nodes)
            most = max(kinds.values(), key=lambda nodes: len(nodes), default=set[str]())
            nodes = frozenset(most if kind is None else kinds[kind])
            self._usable[key] = nodes, len(nodes - self._taken)
        return self._usable[key]

    def loss(self, trainer: PlannedTrainer, nodes: frozenset[str], missing: int) -> float | None:
        """Return the least that one other trainer loses by giving up so many of these nodes."""
        if missing not in self._losses:
            losses = (
                (self._loss(one, missing), one.key)
                for one in self.problem.trainers
                if len(self.plan.assignment[one.key]) >= missing
            )
            self._losses[missing] = sorted(losses)
        for loss, key in self._losses[missing]:
            if key != trainer.key and len(self.plan.assignment[key] & nodes) >= missing:
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
        self._nodes = len(market.plan.assignment[trainer.key])
        self._usable, self._free = market.usable(trainer)

    def reasons(self) -> Reasons:
        """Return why it has so many nodes."""
        limit, better = self._limit()
        gain = loss = None
        if better is not None:
            gain = self._worth(better) - self._worth(self._nodes)
            if limit is Limit.OTHERS:
                missing = better - self._nodes - self._free
                loss = self._market.loss(self._trainer, self._usable, missing)
        return Reasons(
            key=self._trainer.key,
            had=len(self._trainer.current),
            nodes=self._nodes,
            least=self._trainer.min_nodes,
            most=self._trainer.max_nodes,
            limit=limit,
            forward_s=self._problem.forward_time_s,
            pool=len(self._problem.pool),
            usable=len(self._usable),
            free=self._free,
            sizes=tuple(map(self._size, self._shown(better))),
            better=better,
            gain=gain,
            loss=loss,
            price=self._market.price,
        )

    def _limit(self) -> tuple[Limit, int | None]:
        """Return what keeps it from more nodes, and the size that it would have otherwise."""
        one, nodes = self._trainer, self._nodes
        least, reach = max(one.min_nodes, nodes + 1), min(one.max_nodes, len(self._usable))
        if nodes >= one.max_nodes:
            return Limit.MOST, None
        larger = one.corners(least, reach)
        if not larger:
            return Limit.POOL, None
        best = self._best(larger)
        if not self._is_better(best):
            faster = one.curve.at(best) > one.curve.at(nodes) * (1 + _ROUNDING)
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
        cost = one.rescale_cost(nodes, problem.forward_time_s, problem.costs)
        return Size(nodes, one.curve.at(nodes), cost, self._worth(nodes))

    def _worth(self, nodes: int) -> float:
        return self._problem.worth(self._trainer, nodes)
