"""Warm workers: forks of a process that has imported what training imports, the origin.

torchrun starts each worker as a program, ``python -u train.py``; in its place the origin forks one
that behaves so (``script``). It is itself a fork of this process, which has imported torch already:
a new Python would import it a second time (2 s of a core). ``preload`` is what it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.rendezvous import preload

_READY_S = 120.0  # for a cold disk; if it takes longer, the first step does


class Worker:
    """A worker that the origin has forked: what torchrun uses of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """Return its exit code; None: it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code when it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended within so many seconds.
        """
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return self.returncode

    def end(self, code: int) -> None:
        """Note that it has ended; a code below 0 is a signal's."""
        self.returncode = code
        self._ended.set()


class Origin:
    """The process that workers are forked from; it begins at once to import what they need.

    Make it in the main thread, as it ends with the thread that started it, and before there are
    other threads.
    """

    def __init__(self) -> None:
        self._asking, asked = socket.socketpair()
        self._workers: dict[int, Worker] = {}
        self._begun = SimpleQueue[Worker | None]()
        self._ready = threading.Event()
        with asked:
            self.pid = _copied(asked) if _can_be_copied() else _begun_anew(asked)
        # A thread, as torchrun's handlers of signals raise in the main one, between any two lines.
        threading.Thread(target=self._follow, name="bftrainer-workers", daemon=True).start()

    def begin(
        self, arguments: Sequence[str], environment: Mapping[str, str], outputs: Sequence[str]
    ) -> Worker | None:
        """Fork what ``python`` with these arguments would be; None: the origin has ended.

        ``outputs`` are the files for its stdout and stderr; an empty one: this process's.
        """
        try:
            asked = json.dumps([arguments, dict(environment), outputs])
            self._asking.sendall(asked.encode() + b"\n")
        except OSError:
            return None
        return self._begun.get()

    def wait(self) -> None:
        """Wait until a worker would get to its first step at once."""
        self._ready.wait(_READY_S)

    def _follow(self) -> None:
        with contextlib.suppress(OSError), self._asking.makefile() as lines:
            for line in lines:
                match json.loads(line):
                    case ["began", pid]:
                        self._workers[pid] = Worker(pid)
                        self._begun.put(self._workers[pid])
                    case ["ended", pid, code]:
                        self._workers.pop(pid).end(code)
                    case ["ready"]:
                        self._ready.set()
        self._asking.close()
        for worker in self._workers.values():  # they end with the origin
            worker.end(-signal.SIGKILL)
        self._ready.set()
        self._begun.put(None)


def start() -> Origin:
    """Have torchrun's workers forked from now on."""
    origin = Origin()

    def fork(
        arguments: Sequence[str], environment: Mapping[str, str], outputs: Sequence[str]
    ) -> Worker | None:
        if list(arguments[:2]) != [sys.executable, "-u"]:  # no script of Python's
            return None
        return origin.begin(arguments[2:], environment, outputs)

    torch_private.fork_workers(fork)
    return origin


def _can_be_copied() -> bool:
    """Whether a copy would lose nothing: it would lose other threads, and CUDA if it is loaded."""
    return threading.active_count() == 1 and "libcuda.so" not in Path("/proc/self/maps").read_text()


def _begun_anew(asked: socket.socket) -> int:
    code = (
        f"import sys; sys.path, sys.argv = {sys.path}, {sys.argv}\n"
        f"from {preload.__name__} import serve; serve({asked.fileno()})"
    )
    passed = [asked.fileno()]
    return subprocess.Popen([sys.executable, "-c", code], pass_fds=passed).pid


def _copied(asked: socket.socket) -> int:
    sys.stdout.flush()  # else each worker would print it again
    sys.stderr.flush()
    before = _descriptors()
    pid = os.fork()
    if pid:
        return pid
    try:
        _forget_agent({0, 1, 2, asked.fileno()}, before)
        preload.serve(asked.detach())
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _descriptors() -> dict[int, str]:
    """Return what each file descriptor of this process is open on."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one of this listing
            found[int(path.name)] = str(path.readlink())
    return found


def _forget_agent(kept: set[int], before: Mapping[int, str]) -> None:
    """In the copy, let go of all that belongs to the agent.

    Its objects close their files by number sooner or later, and write to them what was not written
    yet. So no number becomes free for a worker's file: it means nothing from here on. Some
    libraries open anew what they need as they are forked: libuv, which TCPStore uses, has a pipe.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, opened in _descriptors().items():
        if number not in {*kept, nothing} and before.get(number) == opened:
            os.dup2(nothing, number, inheritable=False)
