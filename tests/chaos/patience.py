"""How long the suite waits, in seconds of processors that nobody else uses.

Where others use the machine too, everything takes longer, and that is no violation. A bit of work
at each look shows how much longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_WORK_S = 0.01  # of a processor
_MOST = 6.0  # however busy the machine is, it ends


class Patience:
    """Is over after ``seconds`` on an idle machine, and later on a busy one.

    ``clock`` gives the time, and ``used`` the processor time of this thread, both in seconds.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self._left_s = seconds
        self._clock, self._used = clock, used
        self._last_s = clock()

    @property
    def over(self) -> bool:
        """Whether the time is over; to be asked every few seconds."""
        begin_s, before_s = self._clock(), self._used()
        while self._used() - before_s < _WORK_S:
            pass
        now_s = self._clock()
        slower = (now_s - begin_s) / (self._used() - before_s)
        self._left_s -= (now_s - self._last_s) / min(_MOST, max(1.0, slower))
        self._last_s = now_s
        return self._left_s < 0
