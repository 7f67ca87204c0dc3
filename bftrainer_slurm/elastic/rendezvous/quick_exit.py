"""The end of an agent that was told to end: at once, or without the interpreter's teardown.

An ordinary job waits for this node. The teardown of torch's modules takes half a second of
processor time, more than an element's usual grace, and the kernel frees everything anyway.
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


class QuickExit:
    """If told to, ends this process with a code when only the teardown is left to do.

    Make it after torch has been imported.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        # The last one registered runs first: torch's own would free its operators one by one.
        atexit.register(self._end)

    def be_quick(self, code: int) -> None:
        """Let the process end with ``code`` as soon as its own work is done."""
        self._code = code

    def at_once(self, code: int) -> NoReturn:
        """End now, whatever the main thread is doing; any thread may call this.

        Send SIGTERM to multiprocessing's processes without a wait, and remove its files.
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
