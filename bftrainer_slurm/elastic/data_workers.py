"""The processes that load a training process's data: each lives exactly as long as that one."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from multiprocessing.sharedctypes import RawValue
from multiprocessing.util import Finalize

_PR_SET_PDEATHSIG = 1


class DataWorkerStart:
    """What a DataLoader's worker process does first (``worker_init_fn``), before ``own``.

    SIGTERM reaches it too, while its trainer still trains to the boundary; but multiprocessing
    sends it as well, and waits for the end, when the trainer's process exits. Left behind by a
    killed trainer, it would hold the connections open by which the peers see the loss.
    """

    def __init__(self, own: Callable[[int], None] | None = None) -> None:
        self._own = own
        self._exiting = RawValue(ctypes.c_bool, False)
        # multiprocessing calls this one before it ends its children.
        Finalize(self, setattr, (self._exiting, "value", True), exitpriority=100)

    def __call__(self, worker: int) -> None:
        """Begin, in the worker."""
        signal.signal(signal.SIGTERM, self._end_if_exiting)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if self._own is not None:
            self._own(worker)

    def _end_if_exiting(self, *_: object) -> None:
        if self._exiting.value:
            os._exit(0)
