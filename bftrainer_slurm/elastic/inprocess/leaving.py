"""SIGTERM in a training process: it says that it leaves, trains to the boundary, and ends there.

Never with exit code 0: for Slurm that would mean that the trainer has finished.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from bftrainer_slurm.elastic.changes import say
from bftrainer_slurm.elastic.signals import on_signals, wait_for_the_end


class Leaving:
    """Calls ``leave`` once SIGTERM has come, from a thread of its own.

    A handler runs between any two instructions of the main thread, which may hold any lock, or
    does not run while that waits in a collective. ``word`` returns what the job's log says then,
    planned or not; None: somebody else says it.
    """

    def __init__(
        self, leave: Callable[[], None], word: Callable[[bool], str] | None = None
    ) -> None:
        self._leave = leave
        self._word = word
        self._asked = False
        self._before: Any = signal.SIG_DFL

    def watch(self) -> None:
        """Begin; does nothing outside the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._before = signal.signal(signal.SIGTERM, self._note)
        on_signals((signal.SIGTERM,), self._begin)

    def _begin(self) -> None:
        self._say(planned=False)
        self._leave()

    def _say(self, planned: bool) -> None:
        word, self._word = self._word, None
        if word is not None:
            say(word(planned))

    def end(self) -> NoReturn:
        """End as SIGTERM would have; wait for it, if it has not come."""
        signal.signal(signal.SIGTERM, self._before)
        if self._asked:
            os.kill(os.getpid(), signal.SIGTERM)
        self._say(planned=True)
        wait_for_the_end()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked = True
