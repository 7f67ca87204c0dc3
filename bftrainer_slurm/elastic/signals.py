"""Notices a signal at once, whatever Python handlers others install, now or later.

A script that saves when told to completes its step after SIGTERM. It never ends with exit code 0:
for Slurm that would mean that the trainer has finished.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection
from types import FrameType
from typing import NoReturn

SIGNALLED = 128 + signal.SIGTERM  # the exit code of a process that was told to end


def end_when_told(*_: object) -> NoReturn:
    """End as by ``sys.exit()``: a handler of SIGTERM. Raises SystemExit.

    Slurm and the agent each send one; the second must not break off what the first has begun.
    """
    signal.signal(signal.SIGTERM, _pass_over)
    raise SystemExit(SIGNALLED)


def _pass_over(*_: object) -> None:
    """Do nothing: a handler, as a program that an exit handler starts would inherit SIG_IGN."""


def on_signals(numbers: Collection[int], call: Callable[[], None]) -> None:
    """Call ``call`` in a thread when one of these signals comes; its own handler runs as well.

    Outside the main thread it does nothing: Python lets only that thread watch signals. Those of a
    process that is forked from this one are its own.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        _keep_from_children(numbers)

    def watch(kept: socket.socket = writer) -> None:
        while came := reader.recv(64):
            if any(number in numbers for number in came):
                call()

    threading.Thread(target=watch, name="bftrainer-signals", daemon=True).start()


def _keep_from_children(numbers: Collection[int]) -> None:
    """Give a forked process the default action where a handler is ours: it obeys ``terminate()``.

    Until then such a signal waits. Python would forget one that comes as the process begins, and
    this process would take it for its own.
    """
    kept = threading.local()

    def hold() -> None:
        ours = [number for number in numbers if _is_ours(number)]
        kept.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def let_come() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept.mask)

    def begin() -> None:
        signal.set_wakeup_fd(-1)
        for number in filter(_is_ours, numbers):
            signal.signal(number, signal.SIG_DFL)
        let_come()

    os.register_at_fork(before=hold, after_in_parent=let_come, after_in_child=begin)


def _is_ours(number: int) -> bool:
    package = __name__.partition(".")[0]
    return getattr(signal.getsignal(number), "__module__", "").startswith(f"{package}.")


class Sigterm:
    """Calls ``heard`` in a thread of its own when SIGTERM comes; ``came`` says that it has.

    A handler would not do: it runs between any two instructions of the main thread, which may hold
    any lock, and it does not run while that thread waits in a collective.
    """

    def __init__(self, heard: Callable[[], None]) -> None:
        self.came = False
        self._heard = heard

    def watch(self) -> bool:
        """Begin to watch; return False outside the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(signal.SIGTERM, self._note)
        on_signals((signal.SIGTERM,), self._hear)
        return True

    def end(self) -> NoReturn:
        """End as by ``sys.exit()`` when SIGTERM comes, or has come. Raises SystemExit."""
        signal.signal(signal.SIGTERM, end_when_told)
        if self.came:
            end_when_told()
        wait_for_the_end()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True

    def _hear(self) -> None:
        self.came = True
        self._heard()


def wait_for_the_end() -> NoReturn:
    """Wait for SIGTERM: a process that ends well now would say that the training has finished."""
    while True:
        signal.pause()
