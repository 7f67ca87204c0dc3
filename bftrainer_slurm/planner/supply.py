"""The rows of the supply: what elements take of divided nodes, and give back when they leave.

docs/internals/planner.md says why such rows bound every packing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

# Units of a node that nobody has, those of each element on it, and the nodes of which this is true.
State: TypeAlias = tuple[int, Sequence[int], Sequence[str]]
_Frees: TypeAlias = tuple[tuple[tuple[int, bool], float], ...]
_Kinds: TypeAlias = Mapping[tuple[int, _Frees], list[str]]  # of elements: the nodes that have one

MOST_KINDS = 60  # of a class
ROUNDING = 1e-6  # of an element: rows may have fractions


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the supply: how many elements of so many ``gpus`` the class at ``place`` may have.

    ``gpus`` is 0 if its nodes are not divided. ``full``: only new elements on nodes that have no
    room for one now. ``room`` is on how many nodes a trainer may have new ones. If ``frees`` is
    set, the row is of elements that are there now. One that stays takes of other rows what it would
    free for them: by ``gpus`` and ``full``, so many elements. ``nodes`` are where they are.
    """

    place: int
    gpus: int
    amount: float
    room: int = 0
    full: bool = False
    frees: _Frees | None = None
    nodes: Sequence[str] = field(default=(), compare=False)

    def taken_by(self, other: Row) -> float:
        """How much of it an element takes that is one of another row, and that fits."""
        if other.place != self.place or self.frees is not None:
            return 0
        if other.frees is not None:
            return dict(other.frees).get((self.gpus, self.full), 0)
        if self.full:
            return int(other.full and other.gpus == self.gpus)
        return other.gpus // self.gpus if self.gpus else 1


def rows_of(place: int, sizes: Sequence[int], states: Sequence[State]) -> list[Row]:
    """Return a class's rows: of new elements by their size, and of the elements there now.

    ``states`` are its nodes, by what they have.
    """
    amounts = defaultdict[tuple[int, bool], float](float, {(size, False): 0.0 for size in sizes})
    rooms = Counter[tuple[int, bool]]()
    kinds = defaultdict[tuple[int, _Frees], list[str]](list)
    for left, elements, nodes in states:
        for size in sizes:
            amounts[size, False] += left // size * len(nodes)
            if size <= left + sum(elements):
                rooms[size, left < size] += len(nodes)
        for units in elements:
            kinds[units, tuple(_frees(sizes, left, elements, units))] += nodes
    told = sorted((kinds if len(kinds) <= MOST_KINDS else _merged(kinds)).items())
    for (_, frees), nodes in told:
        for key, more in frees:
            amounts[key] += more * len(nodes)
    by_size = sorted(amounts.items(), key=lambda one: (one[0][1], one[0][0]))
    return [
        *(Row(place, key[0], amount, rooms[key], key[1]) for key, amount in by_size),
        *(Row(place, units, len(nodes), 0, False, frees, nodes) for (units, frees), nodes in told),
    ]


def _merged(kinds: _Kinds) -> _Kinds:
    """Return one kind for each number of units; it frees as much as any that is taken into it.

    So the rows bound every packing still, but less tightly.
    """
    frees = defaultdict[int, dict[tuple[int, bool], float]](dict)
    nodes = defaultdict[int, list[str]](list)
    for (units, its), on in kinds.items():
        nodes[units] += on
        for key, more in its:
            frees[units][key] = max(more, frees[units].get(key, 0.0))
    return {(units, tuple(sorted(frees[units].items()))): on for units, on in nodes.items()}


def _frees(
    sizes: Sequence[int], left: int, elements: Sequence[int], units: int
) -> Iterator[tuple[tuple[int, bool], float]]:
    """What an element of so many units frees, at most: how many of each size get room.

    What does not fill a size counts as if it alone made up what is missing to one more; or nothing,
    if all elements together do not. docs/internals/planner.md says why no leaving frees more.
    """
    for size in sizes:
        missing = size - left % size
        reached = sum(one % size for one in elements) >= missing
        if more := units // size + (min(1.0, units % size / missing) if reached else 0):
            yield (size, False), more
            if left < size:
                yield (size, True), more
