"""Runs a script in a forked worker as ``python -u script`` or ``python -u -m module`` would."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import io
import os
import pkgutil
import runpy
import signal
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from multiprocessing import util
from pathlib import Path
from typing import NoReturn, TextIO

from bftrainer_slurm.elastic.processes import end_with_parent
from bftrainer_slurm.elastic.signals import SIGNALLED
from bftrainer_slurm.elastic.tasks import worker

_OURS = (__file__, runpy.__file__, "<frozen runpy>")


def main(
    arguments: Sequence[str], environment: Mapping[str, str], outputs: Sequence[str]
) -> NoReturn:
    """Be what ``python -u`` is with these arguments and variables.

    ``outputs`` are the files for its stdout and stderr; an empty one: those that it has.
    """
    end_with_parent()
    for number, path in enumerate(outputs, 1):
        if path:
            os.dup2(os.open(path, os.O_WRONLY), number)
    os.environ.clear()
    os.environ.update(environment)
    _look_like_a_program()
    sys.orig_argv = [sys.executable, "-u", *arguments]
    is_module = arguments[0] == "-m"
    sys.argv = list(arguments[is_module:])
    code = 0
    try:
        worker.prepare(os.environ)
        _run_module(sys.argv[0]) if is_module else _run(sys.argv[0])
    except SystemExit as end:
        code = _code_of(end)
    except BaseException as error:
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        _tell(error)
    _end(code)


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _tell(error: BaseException) -> None:
    """Print an exception as Python does, and write it where torchrun reads it."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    try:
        raise error.with_traceback(trace)
    except BaseException:
        error.__traceback__ = trace  # without this frame
        with contextlib.suppress(OSError):
            get_error_handler().record_exception(error)
        sys.excepthook(type(error), error, trace)


def _end(code: int) -> NoReturn:
    """End as Python does: with exit handlers, destructors, and open files written."""
    if code == SIGNALLED:  # others wait for this end, and the teardown takes half a second
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        opened = [one for one in gc.get_objects() if isinstance(one, io.IOBase)]
        for file in (*opened, sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed, or a class of the script's
                file.flush()
        os._exit(code)
    ctypes.pythonapi.Py_Exit(code)
    raise AssertionError


def _run(name: str) -> None:
    path = Path(name)
    if pkgutil.get_importer(name) is not None:  # a folder or an archive
        runpy.run_path(name, run_name="__main__")
        return
    main = types.ModuleType("__main__")
    loader = SourceFileLoader("__main__", name)
    main.__dict__.update(__builtins__=builtins, __file__=name, __loader__=loader)
    sys.modules["__main__"] = main  # it stays: threads and atexit's functions may need it
    _put_into_path(path.resolve().parent)
    with io.open_code(name) as file:
        code = compile(file.read(), name, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _run_module(name: str) -> None:
    _put_into_path(Path.cwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _put_into_path(folder: Path) -> None:
    """Put a folder where Python has put torchrun's own one in sys.path."""
    if not getattr(sys.flags, "safe_path", False):  # from Python 3.11 on
        sys.path[0] = str(folder)


def _unbuffered(stream: TextIO) -> TextIO:
    """Return the stream as of ``python -u``: half a line is seen too.

    The stream itself goes on for whoever has it, as loggers do.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(line_buffering=True)
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _look_like_a_program() -> None:
    sys.stdout, sys.stderr = map(_unbuffered, (sys.stdout, sys.stderr))
    util._finalizer_registry.clear()  # type: ignore[attr-defined]  # the agent's
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(threads) > 0:
        # The origin has loaded OpenMP before torchrun set this.
        sys.modules["torch"].set_num_threads(int(threads))
    # Python seeds random again in a forked process, but numpy does not do that.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
