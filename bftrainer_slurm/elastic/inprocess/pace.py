"""How fast a training goes: its pauses at changes, and when progress is worth a message."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from bftrainer_slurm.elastic.steps import Counts

_REPORT_S = 1.0


class Pace:
    """Measures one process's training, step by step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stepped_s: float | None = None
        self._first_s = 0.0  # since the last change
        self._paused = False
        self._reported_s = -math.inf
        self.pause_s: float | None = None  # of the last change that this process lived through

    def stepped(self) -> None:
        """A step was committed."""
        now_s = self._clock()
        if self._paused and self._stepped_s is not None:
            self.pause_s = now_s - self._stepped_s
        self._first_s = self._first_s or now_s
        self._paused, self._stepped_s = False, now_s

    def changed(self) -> None:
        """The world has changed since the last step."""
        self._paused, self._first_s = True, 0.0

    def progress(self, steps: int, samples: int) -> Counts:
        """Return how far the training has come by now, and when in this generation."""
        return Counts(steps, samples, self._first_s, self._stepped_s or 0.0, in_process=True)

    def is_due(self) -> bool:
        """Return whether to report; not more often than once a second."""
        now_s = self._clock()
        if now_s - self._reported_s < _REPORT_S:
            return False
        self._reported_s = now_s
        return True


def known(**measures: Any) -> dict[str, float]:
    """Return those of the measures that are known; a tensor is read only here."""
    return {name: float(value) for name, value in measures.items() if value is not None}
