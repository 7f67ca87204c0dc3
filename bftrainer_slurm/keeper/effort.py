"""Whether a thread works or hangs, by what the kernel says of its time on the processors.

Standard library only. ``membership`` says it of the thread that trains, to which others listen.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

WORK_S = 10.0  # a worker that others wait for says this often that it works
# The share of that which its thread computes at least. One that looks each millisecond whether
# something has come uses 0.03, and 0.1 of what others leave it, as its caches are cold then.
LEAST_WORK = 0.1
LEAST_WORK_STARVED = 0.5  # of the time in which it did not wait for a processor


class Effort:
    """What the thread that makes this does.

    A thread that waits for a processor, as on a node that others use as well, does not hang: that
    time may be left out (``schedstat`` in proc(5), where the kernel keeps it).
    """

    def __init__(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._used_s = self._waited_s = 0.0
        self._look()
        self._looked_s = time.monotonic()

    def has_worked(self, now_s: float) -> bool:
        """Return once in ``WORK_S`` whether the thread has worked since; otherwise False."""
        passed_s = now_s - self._looked_s
        if passed_s < WORK_S:
            return False
        used_s, waited_s = -self._used_s, -self._waited_s
        self._look()
        self._looked_s = now_s
        used_s += self._used_s
        waited_s += self._waited_s
        return used_s >= min(LEAST_WORK * passed_s, LEAST_WORK_STARVED * (passed_s - waited_s))

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # the thread has ended
            self._used_s = time.clock_gettime(self._clock)
        with contextlib.suppress(OSError, ValueError, IndexError):  # or no such kernel
            self._waited_s = int(self._waits.read_text("ascii").split()[1]) / 1e9
