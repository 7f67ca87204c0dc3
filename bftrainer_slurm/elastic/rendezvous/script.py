"""Runs a script in a forked worker as ``python script`` or ``python -m module`` would.

torchrun's ``--run-path`` calls ``runpy.run_path``, which does not set sys.path, buffers the output,
and never ends if the script calls ``sys.exit()``.
"""

from __future__ import annotations

import atexit
import builtins
import io
import multiprocessing
import os
import pkgutil
import runpy
import signal
import sys
import threading
import types
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TextIO

from bftrainer_slurm.elastic.memory import Memory, of_agent
from bftrainer_slurm.elastic.processes import end_with_parent
from bftrainer_slurm.elastic.rendezvous.endings import end_as_python_ends
from bftrainer_slurm.elastic.signals import end_when_told
from bftrainer_slurm.elastic.tasks import worker

_runpy_run_path = runpy.run_path


def take_over_run_path() -> None:
    """Replace the next ``runpy.run_path`` for ``__main__`` in a forked worker by ours."""
    runpy.run_path = _run_path


def _run_path(
    path_name: str, init_globals: Mapping[str, Any] | None = None, run_name: str | None = None
) -> dict[str, Any]:
    if run_name != "__main__":  # multiprocessing loads torchrun's own file in this way
        return _runpy_run_path(path_name, dict(init_globals or {}), run_name)
    runpy.run_path = _runpy_run_path
    end_with_parent()  # torch asks for SIGINT, which C code does not notice
    _look_like_a_program()
    worker.prepare(os.environ)
    end_as_python_ends()
    memory = of_agent(os.environ)
    try:
        run(path_name)
    except SystemExit as end:
        if end.code != 0:
            raise
    if memory is not None:
        _wait_no_longer_than_wanted(memory)
    return {}


def _wait_no_longer_than_wanted(memory: Memory) -> None:
    """Let SIGTERM end this process from now on; end it if its agent is ending its processes.

    torch's next line waits for the agent, which may have sent its SIGTERM while the script was at
    work: one that saves at the signal and ends with 0 would wait until it is killed.
    """
    signal.signal(signal.SIGTERM, end_when_told)
    if memory.present.unwanted:
        end_when_told()


def run(name: str) -> None:
    """Run a script, a folder or archive with a ``__main__``, or a module; ``sys.argv`` is set.

    Raises:
        SystemExit: the script called ``sys.exit()`` with something else than None.
        Exception: whatever the script raises.
    """
    try:
        _run(name)
    except SystemExit as end:
        # torchrun would wait for ever for a worker that exits well without a return.
        if end.code is not None:
            raise
    except KeyboardInterrupt:  # the same
        raise SystemExit(128 + signal.SIGINT) from None
    finally:
        # The interpreter does this at its end, but multiprocessing's processes skip it.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def _run(name: str) -> None:
    path = Path(name)
    if not path.exists():
        if name.endswith(".py") or os.sep in name:
            raise FileNotFoundError(f"there is no script {name}")
        _put_into_path(Path.cwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif pkgutil.get_importer(name) is not None:
        _runpy_run_path(name, run_name="__main__")
    else:
        _run_file(path)


def _run_file(path: Path) -> None:
    main = types.ModuleType("__main__")
    loader = SourceFileLoader("__main__", str(path))
    main.__dict__.update(__builtins__=builtins, __file__=str(path), __loader__=loader)
    sys.modules["__main__"] = main  # it stays: threads and atexit's functions may need it
    _put_into_path(path.resolve().parent)
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _put_into_path(folder: Path) -> None:
    """Put a folder where Python has put torchrun's own one in sys.path."""
    if not getattr(sys.flags, "safe_path", False):  # from Python 3.11 on
        sys.path[0] = str(folder)


def _unbuffered(stream: TextIO) -> TextIO:
    """Return the stream as of ``python -u``, as torchrun runs scripts: half a line is seen too.

    The stream itself goes on for whoever has it, as loggers do.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(line_buffering=True)
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _look_like_a_program() -> None:
    multiprocessing.current_process().name = "MainProcess"
    # Else DataLoaders' workers would come from the fork server too, and run the script once more.
    multiprocessing.set_start_method(None, force=True)
    sys.stdout, sys.stderr = map(_unbuffered, (sys.stdout, sys.stderr))
    # Else the agent's would keep what this process leaves in shared memory until the agent ends.
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(threads) > 0:
        # The fork server has loaded OpenMP before torchrun set this.
        sys.modules["torch"].set_num_threads(int(threads))
    # Python seeds random again in a forked process, but numpy does not do that.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
