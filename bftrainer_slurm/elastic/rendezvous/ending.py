"""The end of an agent that was told to end: at once, or without the interpreter's teardown.

An ordinary job waits for this node. Taking torch's modules apart needs half a second of processor
time, more than an element's usual grace, and leaves nothing behind that the kernel would not free.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import sys
from multiprocessing import util
from typing import NoReturn

from bftrainer_slurm.elastic.rendezvous import semaphores


class Ending:
    """Ends this process with a code at the point where only the teardown is left, if told to.

    It is to be made after torch has been imported.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        # What was registered last comes first: torch would take its operators apart one by one.
        atexit.register(self._end)

    def be_quick(self, code: int) -> None:
        """Let the process end with ``code`` as soon as it has done all of its own."""
        self._code = code

    def at_once(self, code: int) -> NoReturn:
        """End now, whatever the main thread is about to do; from any thread.

        Multiprocessing's processes are sent SIGTERM, and none is waited for; its files go.
        """
        for child in multiprocessing.active_children():
            child.terminate()
        shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
        semaphores.remove_own()
        os._exit(code)

    def _end(self) -> None:
        if self._code is None:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        self.at_once(self._code)
