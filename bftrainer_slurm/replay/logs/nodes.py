"""Node lists in Slurm's syntax (``n[1-3,7]``) to numbers of nodes, cached and bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.slurm import nodelists

MOST_NODES = 200_000
_ALLOWED = re.compile(r"[A-Za-z0-9_.,\[\]-]+\Z")
_ELEMENTS = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_CACHED = 1 << 18
_MOST_PARTITIONS = 63


class NodeNumbers:
    """Numbers the nodes of a log in the order in which they are first seen.

    With ``only``, just these names exist, in that order, and others are skipped. Expanding a list
    costs far more than reading its line, and the same ranges come in many different lists, so the
    ranges are remembered.
    """

    def __init__(self, only: tuple[str, ...] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(only)}
        self._fixed = bool(only)
        self._of_piece = lru_cache(_CACHED)(self._expanded)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, by number."""
        return tuple(self._numbers)

    def known(self, name: str) -> int | None:
        """Return the number of a node that the log has named, or None."""
        return self._numbers.get(name)

    def of(self, node_list: str) -> NDArray[np.int32]:
        """Return the numbers of a node list; raise ValueError if it is not one, or too long."""
        pieces, count = [], 0
        for piece in _pieces(node_list):
            pieces.append(self._of_piece(piece))
            count += len(pieces[-1])
            if count > MOST_NODES:
                raise ValueError(f"a node list has more than {MOST_NODES:,} nodes")
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _expanded(self, piece: str) -> NDArray[np.int32]:
        names = expand(piece)
        if self._fixed:
            known = [self._numbers[name] for name in names if name in self._numbers]
            return np.array(known, dtype=np.int32)
        if len(self._numbers) + len(names) > MOST_NODES:
            fresh = sum(name not in self._numbers for name in names)
            if len(self._numbers) + fresh > MOST_NODES:
                raise ValueError(f"the log names more than {MOST_NODES:,} nodes")
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
        return np.array(numbers, dtype=np.int32)


class Partitions:
    """In which partitions jobs have had which nodes, as the bits of a number for each node."""

    def __init__(self) -> None:
        self._bit: dict[str, int] = {}
        self._bits = np.zeros(MOST_NODES, np.uint64)

    def add(self, nodes: NDArray[np.int32], partition: str) -> None:
        """Note that a job had these nodes. Those after the first 63 partitions count as one."""
        bit = self._bit.setdefault(partition, min(len(self._bit), _MOST_PARTITIONS))
        self._bits[nodes] |= np.uint64(1 << bit)

    def of(self, nodes: int) -> tuple[frozenset[str], ...]:
        """Return the partitions of each of the first nodes."""
        bits = self._bits[:nodes].tolist()
        known = {
            one: frozenset(name for name, bit in self._bit.items() if one >> bit & 1)
            for one in set(bits)
        }
        return tuple(known[one] for one in bits)


def _pieces(node_list: str) -> Iterator[str]:
    """Split ``n[1-3,7],m1`` into ``n[1-3]``, ``n[7]`` and ``m1``."""
    if "[" not in node_list and "," not in node_list:
        yield node_list
        return
    elements = _ELEMENTS.findall(node_list)
    if ",".join(elements) != node_list:
        raise ValueError(f"{node_list[:30]!r} is not a node list")
    for element in elements:
        if element.count("[") != 1:
            yield element
            continue
        prefix, _, rest = element.partition("[")
        ranges, _, suffix = rest.partition("]")
        for one in ranges.split(","):
            yield f"{prefix}[{one}]{suffix}"


def expand(node_list: str) -> list[str]:
    """Return the names in a node list; raise ValueError if it is not one, or too long."""
    if _ALLOWED.match(node_list) and nodelists.most_names(node_list) > MOST_NODES:
        raise ValueError(f"a node list has more than {MOST_NODES:,} nodes")
    names = nodelists.expand(node_list) if _ALLOWED.match(node_list) else ()
    if not names:
        raise ValueError(f"{node_list[:30]!r} is not a node list")
    return list(names)
