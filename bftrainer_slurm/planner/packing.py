"""From counts to nodes where nodes are divided: which nodes each trainer's elements are on.

No element moves, and a trainer has at most one element on a node. Elements stay on the fullest
nodes and new ones go to the fullest nodes that have room, the largest first, so that as many
GPUs as possible stay together for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from bftrainer_slurm.planner.placement import kept_rank, rank
from bftrainer_slurm.planner.problem import (
    NodeClass,
    PlannedTrainer,
    Problem,
    Share,
    feasible,
    value,
)

Nodes = frozenset[str]


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: shares in the trainers' order; their nodes too, where nodes are divided.

    ``optimal``: it is proven the best. No plan is worth more than ``bound``, if that is known.
    ``reason`` says why there is no better one, if the solver failed.
    """

    shares: list[Share]
    optimal: bool = False
    nodes: list[Nodes] | None = None
    bound: float | None = None
    reason: str = ""


def packed(problem: Problem, shares: Sequence[Share]) -> Found:
    """Return nodes for these counts, as ``pack_most`` finds them."""
    return on_nodes(problem, pack_most(problem, shares))


def on_nodes(problem: Problem, nodes: list[Nodes]) -> Found:
    """Return the plan in which the trainers have these nodes."""
    return Found(shares_of(problem, nodes), nodes=nodes)


def pack_most(problem: Problem, shares: Sequence[Share]) -> list[Nodes]:
    """Return nodes for these counts; for as much of them as finds room, if not for all.

    Others may then have what is left. Or, if that is better, for all that trainers have now, if
    they may keep it.
    """
    tries = []
    now = [problem.now(one) for one in problem.trainers]
    for fullest_first in (True, False):
        found = _Packing(problem, fullest_first)
        if found.place(shares):
            return found.nodes()
        found.cut_to_bounds()
        found.fill()
        tries.append(found.nodes())
    if feasible(problem, now):
        found = _Packing(problem, True)
        found.fill()
        tries.append(found.nodes())
    return max(tries, key=lambda nodes: value(problem, shares_of(problem, nodes)))


def shares_of(problem: Problem, nodes: Sequence[Nodes]) -> list[Share]:
    """Return how many nodes of each row of the supply each trainer has."""
    return [
        problem.now(one) if its == one.current else problem.share(its, one)
        for one, its in zip(problem.trainers, nodes, strict=True)
    ]


def is_packed(problem: Problem, nodes: Sequence[Nodes]) -> bool:
    """Whether these nodes keep every bound, have enough GPUs, and let no element move."""
    for one, its in zip(problem.trainers, nodes, strict=True):
        if not (problem.pool >= its and (its <= one.current or its >= one.current)):
            return False
    if min(problem.left_by(nodes).values(), default=0) < 0:
        return False
    pairs = zip(problem.trainers, shares_of(problem, nodes), strict=True)
    return all(problem.allows(one, share) for one, share in pairs)


class _Bins:
    """What is left of each node, in units: GPUs, or one for a node that is not divided."""

    def __init__(self, problem: Problem) -> None:
        self._class_of, self.left = problem.class_of, dict(problem.left)
        # Of each class, by its nodes, the nodes by how much is left; a dict keeps their order.
        self._with = {
            part.nodes: defaultdict[int, dict[str, None]](dict) for part in problem.all_classes()
        }
        for node in sorted(self.left, key=partial(rank, problem)):  # what lasts is taken first
            self._with[self._class_of[node].nodes][self.left[node]][node] = None

    def put(self, nodes: Iterable[str], gpus: int, sign: int = 1) -> None:
        """Put an element of so many GPUs on each of these nodes; with -1, take it away."""
        for node in nodes:
            part, left = self._class_of[node], self.left[node]
            levels, now = self._with[part.nodes], left - sign * part.units_of(gpus)
            del levels[left][node]
            self.left[node] = now
            levels[now][node] = None

    def room(self, gpus: int, part: NodeClass, fullest_first: bool) -> Iterator[str]:
        """Yield the nodes of a class with room for an element; take none while it runs."""
        levels = self._with[part.nodes]
        for has in sorted(levels, reverse=not fullest_first):
            if has >= part.units_of(gpus):
                yield from levels[has]


@dataclass(slots=True)
class _Placed:
    """One trainer's nodes: those that it keeps, and new ones."""

    trainer: PlannedTrainer
    kept: set[str]
    new: dict[str, None]  # in the order in which it got them

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.new)


class _Packing:
    """All trainers' nodes in the making; ``bins`` say what they leave now."""

    def __init__(self, problem: Problem, fullest_first: bool) -> None:
        self._problem, self._bins, self._fullest_first = problem, _Bins(problem), fullest_first
        self._placed = [_Placed(one, set(one.current), {}) for one in problem.trainers]

    def nodes(self) -> list[Nodes]:
        """Return each trainer's nodes."""
        return [frozenset(one.kept | one.new.keys()) for one in self._placed]

    def place(self, shares: Sequence[Share]) -> bool:
        """Give the trainers these shares as far as there is room; return whether all have them."""
        rows, classes = self._problem.rows, self._problem.all_classes()
        changes = [
            (one, number, count - had)
            for one, share in zip(self._placed, shares, strict=True)
            if share != (now := self._problem.now(one.trainer))
            for number, (had, count) in enumerate(zip(now, share, strict=True))
            if count != had
        ]
        for one, number, more in changes:
            if more < 0:
                self._leave(one, number, -more)
        new = [change for change in changes if change[2] > 0]
        new.sort(key=lambda change: (-rows[change[1]].gpus, -change[2]))
        found = True
        for one, number, more in new:
            nodes = list(islice(self._room(one, classes[rows[number].place]), more))
            self._put(one, nodes)
            found = found and len(nodes) == more
        return found

    def cut_to_bounds(self) -> None:
        """Let trainers that got less than planned go down to a size that they may have."""
        for one in self._placed:
            if one.trainer.allows(one.count):
                continue
            for node in [*sorted(one.kept), *one.new][::-1]:
                self._drop(one, node)
                if one.trainer.allows(one.count):
                    break

    def fill(self) -> None:
        """Let trainers grow by what pays most, as long as one can; those with large elements first.

        One that leaves a node cannot grow.
        """
        growing = [one for one in self._placed if one.kept == one.trainer.current]
        growing.sort(key=lambda one: -one.trainer.gpus)
        for one in growing:
            self._grow(one)

    def _grow(self, one: _Placed) -> None:
        problem, trainer = self._problem, one.trainer
        kinds: dict[str, list[str]] = defaultdict(list)
        for part in problem.all_classes():
            if problem.may_use(trainer, part):
                kinds[part.hardware] += self._room(one, part)
        now = {problem.class_of[node].hardware for node in one.kept | one.new.keys()}
        best, gain, nodes = one.count, 0.0, list[str]()
        for kind, room_on in kinds.items():
            if not room_on or (now and now != {kind}):
                continue
            least, most = one.count + 1, min(trainer.max_nodes, one.count + len(room_on))
            for size in trainer.corners(max(least, trainer.min_nodes), most):
                more = problem.worth(trainer, size) - problem.worth(trainer, one.count)
                if more > gain:
                    best, gain, nodes = size, more, room_on
        self._put(one, nodes[: best - one.count])

    def _leave(self, one: _Placed, number: int, count: int) -> None:
        """Leave the emptiest nodes of a row; of those as empty, what ends first or came last."""
        here = self._problem.nodes_of(one.trainer, number)
        here.sort(
            key=lambda node: (self._bins.left[node], kept_rank(self._problem, node)), reverse=True
        )
        for node in here[:count]:
            self._drop(one, node)

    def _drop(self, one: _Placed, node: str) -> None:
        self._bins.put([node], one.trainer.gpus, -1)
        one.kept.discard(node)
        one.new.pop(node, None)

    def _put(self, one: _Placed, nodes: Iterable[str]) -> None:
        self._bins.put(nodes, one.trainer.gpus)
        one.new.update(dict.fromkeys(nodes))

    def _room(self, one: _Placed, part: NodeClass) -> Iterator[str]:
        """Yield the nodes of a class with room for an element, on which it has none."""
        own = one.trainer.current | one.new.keys()
        room = self._bins.room(one.trainer.gpus, part, self._fullest_first)
        return (node for node in room if node not in own)
