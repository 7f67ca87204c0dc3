"""Which numbers of nodes a trainer may have. Standard library only."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """``only`` these numbers of nodes (ascending), or multiples of ``step``; else any number."""

    only: tuple[int, ...] = ()
    step: int = 1

    def up_to(self, nodes: int) -> int:
        """The greatest allowed number of nodes up to this; 0 if there is none."""
        if self.only:
            return (0, *self.only)[bisect_right(self.only, nodes)]
        return nodes - nodes % max(1, self.step)

    def between(self, least: int, most: int) -> tuple[int, ...]:
        """The allowed numbers from ``least`` to ``most``."""
        if self.only:
            return tuple(size for size in self.only if least <= size <= most)
        step = max(1, self.step)
        return tuple(range(-(-least // step) * step, most + 1, step))


ANY = Sizes()
