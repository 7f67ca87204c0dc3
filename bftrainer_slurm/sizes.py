"""Which numbers of nodes a trainer may have. Standard library only."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """``only`` these numbers of nodes (ascending), or multiples of ``step``; else any number.

    Of multiples, those in ``without`` (ascending) are left out.
    """

    only: tuple[int, ...] = ()
    step: int = 1
    without: tuple[int, ...] = ()

    def up_to(self, nodes: int) -> int:
        """The greatest allowed number of nodes up to this; 0 if there is none."""
        if self.only:
            return (0, *self.only)[bisect_right(self.only, nodes)]
        step = max(1, self.step)
        size = nodes - nodes % step
        while size and size in self.without:
            size -= step
        return size

    def between(self, least: int, most: int) -> tuple[int, ...]:
        """The allowed numbers from ``least`` to ``most``."""
        if self.only:
            return tuple(size for size in self.only if least <= size <= most)
        step = max(1, self.step)
        sizes = range(-(-least // step) * step, most + 1, step)
        return tuple(size for size in sizes if size not in self.without)


ANY = Sizes()
