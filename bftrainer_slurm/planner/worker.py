"""A child process that exchanges lines with us, each with a time limit in both directions."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence

_MAX_LINE = 16 * 1024 * 1024
_CHUNK = 64 * 1024


class WorkerError(Exception):
    """The child cannot be started, has ended, is too slow or sends too much."""


class SlowWorkerError(WorkerError):
    """The child did not take, or send, a line within the limit."""


class Worker:
    """One child process. It is in a session of its own: Ctrl-C is for its parent to handle."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it.

        Raises:
            WorkerError: there is no such program, or no process can be made.
        """
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerError(f"cannot be started: {error.strerror}") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        # A child that does not read, or half a line, must not block us.
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._heard = bytearray()

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def send(self, line: bytes, limit_s: float) -> None:
        """Write one line.

        Raises:
            WorkerError: it has ended, or does not read within the limit.
        """
        deadline_s = time.monotonic() + limit_s
        rest = memoryview(line + b"\n")
        while rest:
            _wait(self._stdin, select.POLLOUT, deadline_s)
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise WorkerError(self._how_it_ended()) from error

    def receive(self, limit_s: float) -> bytes:
        """Read one line.

        Raises:
            WorkerError: it has ended, sends too much, or no whole line came within the limit.
        """
        deadline_s = time.monotonic() + limit_s
        while b"\n" not in self._heard:
            if len(self._heard) > _MAX_LINE:
                raise WorkerError("sends too much")
            _wait(self._stdout, select.POLLIN, deadline_s)
            chunk = os.read(self._stdout, _CHUNK)
            if not chunk:
                raise WorkerError(self._how_it_ended())
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return bytes(line)

    def end(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _how_it_ended(self) -> str:
        # Its pipe closes a moment before its exit code is available.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        if code is None:
            return "closed its pipe"
        return f"died of signal {-code}" if code < 0 else f"ended with exit code {code}"


def _wait(descriptor: int, event: int, deadline_s: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left_s = max(0.0, deadline_s - time.monotonic())
    if not poll.poll(left_s * 1000):
        raise SlowWorkerError("did not answer in time")
