"""How long the suite waits, in seconds of processors that nobody else uses.

Where others use the machine too, everything takes longer, and that is no violation. A bit of work
at each look shows how much longer.
"""

from __future__ import annotations

import time

_WORK_S = 0.01  # of a processor
_MOST = 6.0  # however busy the machine is, it ends


class Patience:
    """Is over after ``seconds`` on an idle machine, and later on a busy one."""

    def __init__(self, seconds: float) -> None:
        self._left_s, self._last_s = seconds, time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the time is over; to be asked every few seconds."""
        begin_s, before_s = time.monotonic(), time.thread_time()
        while (used_s := time.thread_time() - before_s) < _WORK_S:
            pass
        now_s = time.monotonic()
        slower = min(_MOST, max(1.0, (now_s - begin_s) / used_s))
        self._left_s -= (now_s - self._last_s) / slower
        self._last_s = now_s
        return self._left_s < 0
