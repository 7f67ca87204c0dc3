"""A forked worker's end: that of any Python, which multiprocessing's processes skip.

Files that the script has left open are written, and destructors and exit handlers run, those of
libraries in C too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import sys
from multiprocessing import forkserver
from types import SimpleNamespace
from typing import Any, NoReturn

from bftrainer_slurm.elastic.signals import SIGNALLED


def end_as_python_ends() -> None:
    """Let this process, a fork of multiprocessing's fork server, end as Python ends."""
    outputs = [(os.dup(number), number) for number in (1, 2)]

    def end(code: int) -> NoReturn:
        for output, number in outputs:  # torch takes its --redirects back before this
            os.dup2(output, number)
        _end(code)

    server: Any = forkserver
    server.os = SimpleNamespace(**{**vars(os), "_exit": end})


def _end(code: int) -> NoReturn:
    if code == SIGNALLED:
        # Others wait for this end. The teardown of torch's modules takes half a second.
        _write_open_files()
        os._exit(code)
    ctypes.pythonapi.Py_Exit(code)
    raise AssertionError


def _write_open_files() -> None:
    opened = [one for one in gc.get_objects() if isinstance(one, io.IOBase)]
    for file in (*opened, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or a class of the script's
            file.flush()
