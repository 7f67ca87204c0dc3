"""The course of a replay over time, in no more points than a picture shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from bftrainer_slurm.replay.cluster import Moment

_MOST_POINTS = 4000


@dataclass(slots=True)
class Timeline:
    """Moments of a replay; if there are too many, every second one is dropped."""

    moments: list[Moment] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def add(self, moment: Moment) -> None:
        """Add a moment."""
        if self._seen % self._every == 0:
            self.moments.append(moment)
        self._seen += 1
        if len(self.moments) > _MOST_POINTS:
            self.moments = self.moments[::2]
            self._every *= 2
