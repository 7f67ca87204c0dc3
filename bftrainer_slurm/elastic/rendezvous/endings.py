"""How an agent that was told to end does so: at once, as an ordinary job waits for this node.

The teardown of torch's modules takes half a second of processor time, more than an element's usual
grace. Workers that were forked end with the agent.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import sys
from multiprocessing import util
from typing import NoReturn


def end_soon(code: int) -> None:
    """Let this process end with ``code`` as soon as its own work is done."""

    def end() -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        end_now(code)

    atexit.register(end)  # the last one registered runs first: torch's would take their time


def end_now(code: int) -> NoReturn:
    """End now, whatever the main thread is doing; any thread may call this.

    Send SIGTERM to multiprocessing's processes without a wait, and remove its files: a launcher may
    have some.
    """
    for child in multiprocessing.active_children():
        child.terminate()
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
    os._exit(code)
