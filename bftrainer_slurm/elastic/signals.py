"""Hearing of a signal at once, whatever Python handlers others install, now or later."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection
from typing import NoReturn


def on_signals(numbers: Collection[int], call: Callable[[], None]) -> None:
    """Call from a thread when one of these signals has come, beside its own handler.

    Does nothing outside the main thread: only there Python lets signals be watched.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch(kept: socket.socket = writer) -> None:
        while came := reader.recv(64):
            if any(number in numbers for number in came):
                call()

    threading.Thread(target=watch, name="bftrainer-signals", daemon=True).start()


def wait_for_the_end() -> NoReturn:
    """Wait for SIGTERM: to end now, and well, would mean that the training has finished."""
    while True:
        signal.pause()
