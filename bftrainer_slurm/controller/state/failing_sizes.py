"""On which numbers of nodes a trainer's script fails, though it trains on others. Pure.

What others may be the cause of is no failure of a size: a failure by a signal, one on a single node
on which the script has not trained, and one on the size on which it trained last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bftrainer_slurm.arrays import format_ranges
from bftrainer_slurm.sizes import Sizes

_OFTEN = 2  # failures on a size: one may be bad luck
_RECENT_S = 3600.0
_MANY = 16  # sizes that fail: then only those on which it has trained are left
_MOST = 32  # sizes that are tried in place of one that fails
_SIGNAL = re.compile(r"\bsignal SIG|exitcode: -")  # torch's words
_LONGEST = 200  # characters of an error
_SHOWN = 60  # characters of a list of sizes


@dataclass(frozen=True, slots=True)
class FailedSize:
    """The failures of a trainer's script on one number of nodes."""

    error: str  # the last line of the last failure
    last_s: float  # Unix seconds
    count: int = 1
    node: str = ""  # which told of them; it is not the only one if that is ``certain``
    certain: bool = False  # no single node is the cause
    settled: bool = False  # it was often, and the script has trained on another size since

    @property
    def often(self) -> bool:
        """Whether the size may be the cause."""
        return self.settled or (self.certain and self.count >= _OFTEN)


@dataclass(frozen=True, slots=True)
class TriedSizes:
    """The sizes on which a trainer's script ``trained``, the last one last, and has ``failed``.

    ``nodes`` are those on which it trained last, as far as they are known.
    """

    trained: tuple[int, ...] = ()
    nodes: Set[str] = frozenset()
    failed: Mapping[int, FailedSize] = field(default_factory=lambda: MappingProxyType({}))

    def trains(self, size: int, nodes: Set[str]) -> TriedSizes:
        """It has trained for a while: what failed before fails because of its size."""
        trained = (*(one for one in self.trained if one != size), size)
        others = ((other, one) for other, one in self.failed.items() if other != size)
        failed = {other: replace(one, settled=one.often) for other, one in others}
        after = TriedSizes(trained, nodes or self.nodes, failed)
        return self if size == 0 or after == self else after

    def fails(self, size: int, nodes: Sequence[str], text: str, now_s: float) -> TriedSizes:
        """Its script has failed, though no node was lost: ``nodes`` told its ``text``."""
        error = (text.strip().splitlines() or [""])[-1][:_LONGEST]
        if size == 0 or _SIGNAL.search(error):
            return self
        if self.trained[-1:] == (size,):  # then the others failed for the same reason
            return replace(self, failed={n: one for n, one in self.failed.items() if one.settled})
        one = self.failed.get(size)
        if one is None or not _is_recent(one, now_s):
            one = FailedSize(error, now_s, count=0)
        told = {one.node, *nodes} - {""}
        new = replace(
            one,
            error=error,
            last_s=now_s,
            count=one.count + 1,
            node=min(told, default=""),
            certain=one.certain or len(told) > 1 or bool(told & self.nodes),
        )
        return replace(self, failed={**self.failed, size: new})

    def in_question(self, node: str) -> bool:
        """Whether what only ``node`` tells of may as well be a failure of a size."""
        new = (one for size, one in self.failed.items() if size not in self.trained)
        return bool(self.trained) and any(one.node == node and not one.certain for one in new)

    @property
    def lasting(self) -> TriedSizes:
        """What the next controller has to know; the keeper repeats a single failure to it."""
        often = {size: one for size, one in self.failed.items() if one.often}
        return TriedSizes(self.trained, failed=often)

    @property
    def for_good(self) -> dict[int, FailedSize]:
        """The sizes on which the script fails, and has never trained."""
        return {n: one for n, one in self.failed.items() if one.settled and n not in self.trained}

    def left_out(self, now_s: float) -> dict[int, FailedSize]:
        """The sizes that the trainer does without: those for good, and others for an hour."""
        often = {n: one for n, one in self.failed.items() if self.trained and one.often}
        recent = {n: one for n, one in often.items() if _is_recent(one, now_s)}
        return dict(sorted((recent | self.for_good).items()))

    def smaller(self, sizes: Sequence[int], now_s: float) -> tuple[int, ...]:
        """The next of these ``sizes`` (ascending) to try, before anything else; empty: none.

        They reach up to half of the least that fails, or to one on which the script has trained.
        """
        recent = {n: one for n, one in self.failed.items() if _is_recent(one, now_s)}
        failing = [n for n, one in recent.items() if one.often and not one.settled]
        if not self.trained and sum(one.count for one in recent.values()) >= _OFTEN:
            failing = list(recent)
        least = min(failing, default=0)
        below = [size for size in sizes if size < least]
        trained = (size for size in self.trained if size < least)
        most = max((least + 1) // 2, *trained, 0)
        found = [size for size in below if size <= most] or below
        return tuple(reversed(found[:: -(len(found) // (_MOST + 1) + 1)]))

    def allowed(self, sizes: Sizes, least: int, most: int, now_s: float) -> Sizes:
        """Return what is left of ``sizes`` from ``least`` to ``most`` nodes."""
        out = self.left_out(now_s)
        left = [size for size in sizes.between(least, most) if size not in out]
        if smaller := self.smaller(left, now_s):
            return Sizes(smaller)
        if not (out and left):
            return sizes
        if len(out) > _MANY and (known := sorted({*self.trained} & {*left})):
            return Sizes(tuple(known[-_MOST:]))
        return Sizes(tuple(left)) if sizes.only else replace(sizes, without=tuple(out))


def in_words(out: Mapping[int, FailedSize]) -> str:
    """Say which sizes are left out, and quote the script."""
    last = max(out.values(), key=lambda one: one.last_s)
    numbers = ", ".join(format_ranges(sorted(out)))[:_SHOWN]
    return f"{numbers} node{'' if numbers == '1' else 's'}, where its script fails: {last.error}"


def _is_recent(one: FailedSize, now_s: float) -> bool:
    return now_s - one.last_s < _RECENT_S


NOTHING_TRIED = TriedSizes()
