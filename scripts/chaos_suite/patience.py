"""How long the suite waits: in seconds that the processors really gave to it.

Where others use the machine all takes longer, and is not worse for that. A bit of work at every
look tells how much longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_WORK_S = 0.01  # of a processor
_MOST = 6.0  # all ends at some time, however busy the machine


class Patience:
    """Is over after ``seconds`` on an idle machine, and later on a busy one.

    ``clock`` and ``used`` say how late it is, and how many seconds a processor has worked for us.
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
        """Whether it has been long enough; to be asked every few seconds."""
        begin_s, before_s = self._clock(), self._used()
        while self._used() - before_s < _WORK_S:
            pass
        now_s = self._clock()
        slower = (now_s - begin_s) / (self._used() - before_s)
        self._left_s -= (now_s - self._last_s) / min(_MOST, max(1.0, slower))
        self._last_s = now_s
        return self._left_s < 0
