"""From counts to nodes where nodes are divided: which nodes each trainer's elements are on.

No element moves, and a trainer has at most one element on a node. Elements stay on the fullest
nodes and new ones go to the fullest nodes that have room, the largest first, so that as many
GPUs as possible stay together for others.

Trainers with choices have chosen before (``problem.settled``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice

from bftrainer_slurm.planner.problem import PlannedTrainer, Problem, Share, feasible, value

Nodes = frozenset[str]


def pack(problem: Problem, shares: Sequence[Share]) -> list[Nodes] | None:
    """Return the nodes of each trainer, in their order; None if these counts found no room."""
    bins = _bins_now(problem)
    for fullest_first in (True, False):
        found = _Packing(problem, bins.copy(), fullest_first)
        if found.place(shares):
            return found.nodes()
    return None


def pack_most(problem: Problem, shares: Sequence[Share]) -> list[Nodes]:
    """Return nodes for as much of these counts as finds room; others may have what is left.

    Or, if that is better, for all that trainers have now, if they may keep it.
    """
    tries = []
    now = [problem.now(one) for one in problem.trainers]
    wishes = [(shares, True), (shares, False)]
    if feasible(problem, now):
        wishes.append((now, True))
    bins = _bins_now(problem)
    for wanted, fullest_first in wishes:
        found = _Packing(problem, bins.copy(), fullest_first)
        if not found.place(wanted) or wanted is now:
            found.cut_to_bounds()
            found.fill()
        tries.append(found.nodes())
    return max(tries, key=lambda nodes: value(problem, shares_of(problem, nodes)))


def shares_of(problem: Problem, nodes: Sequence[Nodes]) -> list[Share]:
    """Return how many nodes of each row of the supply each trainer has."""
    pairs = zip(problem.trainers, nodes, strict=True)
    return [problem.share(its, one.gpus) for one, its in pairs]


def is_packed(problem: Problem, nodes: Sequence[Nodes]) -> bool:
    """Whether these nodes keep every bound, have enough GPUs, and let no element move."""
    bins = _Bins(problem)
    if not all(
        problem.pool >= its and (its <= one.current or its >= one.current)
        for one, its in zip(problem.trainers, nodes, strict=True)
    ):
        return False
    for one, its in zip(problem.trainers, nodes, strict=True):
        for node in its:
            bins.take(node, one)
    if bins.overfull:
        return False
    pairs = zip(problem.trainers, shares_of(problem, nodes), strict=True)
    return all(problem.allows(one, share) for one, share in pairs)


class _Bins:
    """What is left of each node, in units: GPUs, or one for a node that is not divided."""

    def __init__(self, problem: Problem) -> None:
        self._classes = classes = problem.all_classes()
        self.place = {node: at for at, part in enumerate(classes) for node in sorted(part.nodes)}
        self.left = {node: problem.units_on(node, classes[at]) for node, at in self.place.items()}
        self.overfull = False
        # Nodes of each class by how much is left; a dict keeps their order.
        self._with: list[dict[int, dict[str, None]]] = [defaultdict(dict) for _ in classes]
        for node, has in self.left.items():
            self._with[self.place[node]][has][node] = None

    def copy(self) -> _Bins:
        """Return bins in which elements can be put without a trace in these."""
        other = copy(self)
        other.left = dict(self.left)
        other._with = [
            defaultdict(dict, {has: dict(nodes) for has, nodes in levels.items()})
            for levels in self._with
        ]
        return other

    def units(self, trainer: PlannedTrainer, place: int) -> int:
        """What an element of this trainer takes of a node of this class."""
        return self._classes[place].units_of(trainer.gpus)

    def take(self, node: str, trainer: PlannedTrainer, times: int = 1) -> None:
        """Put an element on a node; -1 takes it away."""
        place = self.place[node]
        self._with[place][self.left[node]].pop(node)
        self.left[node] -= times * self.units(trainer, place)
        self._with[place][self.left[node]][node] = None
        self.overfull |= self.left[node] < 0

    def room(self, trainer: PlannedTrainer, place: int, fullest_first: bool) -> Iterator[str]:
        """Yield the nodes of a class with room for an element; take none while it runs."""
        least, levels = self.units(trainer, place), self._with[place]
        for has in sorted(levels, reverse=not fullest_first):
            if has >= least:
                yield from levels[has]


def _bins_now(problem: Problem) -> _Bins:
    """What is left beside the elements that trainers have now."""
    bins = _Bins(problem)
    for one in problem.trainers:
        for node in sorted(one.current):
            bins.take(node, one)
    return bins


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

    def __init__(self, problem: Problem, bins: _Bins, fullest_first: bool) -> None:
        self._problem, self._bins, self._fullest_first = problem, bins, fullest_first
        self._placed = [_Placed(one, set(one.current), {}) for one in problem.trainers]

    def nodes(self) -> list[Nodes]:
        """Return each trainer's nodes."""
        return [frozenset(one.kept | one.new.keys()) for one in self._placed]

    def place(self, shares: Sequence[Share]) -> bool:
        """Give the trainers these shares as far as there is room; return whether all have them."""
        by_class = self._problem.by_class
        now = [by_class(self._problem.now(one)) for one in self._problem.trainers]
        wanted = list(map(by_class, shares))
        complete = True
        for at in range(len(self._problem.all_classes())):
            changes = [
                (one, counts[at] - had[at])
                for one, counts, had in zip(self._placed, wanted, now, strict=True)
            ]
            changes.sort(key=lambda change: (-self._bins.units(change[0].trainer, at), -change[1]))
            for one, more in changes:
                if more < 0:
                    self._leave(one, at, -more)
            for one, more in changes:
                if more > 0:
                    complete = self._join(one, at, more) and complete
        return complete

    def cut_to_bounds(self) -> None:
        """Let trainers that got less than planned go down to a size that they may have."""
        for one in self._placed:
            for node in [*sorted(one.kept), *one.new][::-1]:
                if one.trainer.allows(one.count):
                    break
                self._drop(one, node)

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
        own = one.kept | one.new.keys()
        kinds: dict[str, list[str]] = defaultdict(list)
        classes = problem.all_classes()
        for number, row in enumerate(problem.rows()):
            if problem.room(trainer, number):
                room = self._bins.room(trainer, row.place, self._fullest_first)
                hardware = classes[row.place].hardware
                kinds[hardware] += [node for node in room if node not in own]
        now = {classes[self._bins.place[node]].hardware for node in own}
        best, gain, nodes = one.count, 0.0, list[str]()
        for kind, room_on in kinds.items():
            if now and now != {kind}:
                continue
            least, most = one.count + 1, min(trainer.max_nodes, one.count + len(room_on))
            for size in trainer.corners(max(least, trainer.min_nodes), most):
                more = problem.worth(trainer, size) - problem.worth(trainer, one.count)
                if more > gain:
                    best, gain, nodes = size, more, room_on
        for node in nodes[: best - one.count]:
            self._bins.take(node, trainer)
            one.new[node] = None

    def _leave(self, one: _Placed, at: int, count: int) -> None:
        """Leave the emptiest nodes; of those that are as empty, the last ones that it got."""
        since_s = self._problem.since_s
        here = [node for node in one.kept if self._bins.place[node] == at]
        here.sort(
            key=lambda node: (self._bins.left[node], since_s.get(node, math.inf), node),
            reverse=True,
        )
        for node in here[:count]:
            self._drop(one, node)

    def _drop(self, one: _Placed, node: str) -> None:
        self._bins.take(node, one.trainer, -1)
        one.kept.discard(node)
        one.new.pop(node, None)

    def _join(self, one: _Placed, at: int, count: int) -> bool:
        room = self._bins.room(one.trainer, at, self._fullest_first)
        nodes = list(islice((node for node in room if node not in one.kept), count))
        for node in nodes:
            self._bins.take(node, one.trainer)
            one.new[node] = None
        return len(nodes) == count
