"""Which numbers of nodes a trainer may have, and on which it can train. Standard library only."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace


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


_OFTEN = 2  # failures elsewhere, without training: one may be bad luck
_KEPT_S = 3600.0  # then others are tried again: the script, or its checkpoints, may be others


@dataclass(frozen=True, slots=True)
class OneSize:
    """A trainer's group has ``nodes`` nodes now, and last trained on ``trained``; 0: not known.

    On other numbers of nodes it has failed ``failures`` times, last on ``failed_on`` at ``last_s``.
    """

    nodes: int = 0
    trained: int = 0
    failed_on: int = 0
    failures: int = 0
    last_s: float = 0.0

    def kept_on(self, now_s: float) -> int:
        """The number of nodes that it is kept on; 0: on none in particular."""
        certain = self.failures >= _OFTEN and now_s - self.last_s < _KEPT_S
        return self.trained if certain else 0

    def formed(self, nodes: int) -> OneSize:
        """Its group has so many nodes now."""
        return self if nodes == self.nodes else replace(self, nodes=nodes)

    def trains(self) -> OneSize:
        """It has trained for a while: if not where it did before, other sizes work too."""
        if self.nodes in (0, self.trained):
            return self
        return OneSize(self.nodes, self.nodes)

    def failed(self, now_s: float) -> OneSize:
        """Its script has failed, though no node was lost."""
        if not self.trained or self.nodes in (0, self.trained):
            return self
        before = self.failures if now_s - self.last_s < _KEPT_S else 0
        return replace(self, failed_on=self.nodes, failures=before + 1, last_s=now_s)


def why_kept(size: OneSize) -> str:
    """Say why it is kept on so many nodes, and what to do about it."""
    on, other = size.trained, size.failed_on
    return (
        f"kept on {on} nodes, as it failed twice on {other}: if its checkpoints fit one size only, "
        f"as DeepSpeed ZeRO's, save universal ones (ds_to_universal), or write sizes={on}"
    )


UNKNOWN = OneSize()
