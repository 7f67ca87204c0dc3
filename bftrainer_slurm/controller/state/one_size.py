"""Whether a trainer fails on any other number of nodes than the one it trained on. Pure.

DeepSpeed's ZeRO, for one, loads a checkpoint only on as many ranks as have saved it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
