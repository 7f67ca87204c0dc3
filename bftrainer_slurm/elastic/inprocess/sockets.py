"""Closes the TCP connections of a group: the way to free a thread that waits in gloo.

gloo cannot be aborted (torch 2.13: ``ProcessGroup.abort`` does nothing there), but a collective
whose connection is shut down fails at once, here and at the peers. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

_TIMES = (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO)
_TIME = struct.Struct("ll")  # a timeval: seconds, microseconds
_AT_ONCE = 64  # so few descriptors more does this need
_ROUNDING_S = 0.01  # the kernel counts in its own ticks


class Connections:
    """Those of gloo and of its store, whoever else opens connections in this process.

    gloo sets the timeout of the group on each of its sockets, so ``timeout_s`` has to be one that
    nobody else is likely to use; None: there is no group. The store's have its endpoint.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self._timeout_s = timeout_s
        self._stores: set[tuple[str, int]] = set()  # where a client finds it
        self._hosted: int | None = None  # the port of the store in this process

    def add_store(self, host: str, port: int, hosted: bool) -> None:
        """Count a store's connections from now on; ``hosted``: this process opened it."""
        for *_, found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            self._stores.add(_endpoint(found))
        self._hosted = port if hosted else self._hosted

    def shut_down(self, gently: bool = False) -> None:
        """End them, from any thread; their owner still has to close the descriptors.

        ``gently``: their owner reads that they have ended, and can write until then. gloo then
        fails all that is under way, and closes them. If a write fails first, gloo now and then
        forgets it, and who waits for that send waits for its timeout, half an hour. (Of pairs of
        ranks that only ran collectives, 42 in 145 hung when cut, and none in 200 when cut gently.)

        Listening sockets stay as they are: gloo ends the process if accept fails.
        """
        how = socket.SHUT_RD if gently else socket.SHUT_RDWR
        descriptors = _descriptors()
        while some := list(islice(descriptors, _AT_ONCE)):
            with contextlib.ExitStack() as opened:
                ours = [one for number in some if (one := self._ours(number, opened)) is not None]
                for one in ours:  # one right after the other: gloo then forgets fewer
                    with contextlib.suppress(OSError):  # never connected, or ended already
                        one.shutdown(how)

    def _ours(self, descriptor: int, opened: contextlib.ExitStack) -> socket.socket | None:
        """Return a duplicate if this is one of them: the number may be another file's soon."""
        with contextlib.suppress(OSError):  # closed in between, or never connected
            one = opened.enter_context(_duplicate(descriptor))
            return one if self._is_ours(one) else None
        return None

    def _is_ours(self, one: socket.socket) -> bool:
        if one.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        if _endpoint(one.getpeername()) in self._stores:
            return True
        return one.getsockname()[1] == self._hosted or self._is_gloos(one)

    def _is_gloos(self, one: socket.socket) -> bool:
        return self._timeout_s is not None and all(
            abs(_seconds(one, time) - self._timeout_s) < _ROUNDING_S for time in _TIMES
        )


def _seconds(one: socket.socket, time: int) -> float:
    seconds, microseconds = _TIME.unpack(one.getsockopt(socket.SOL_SOCKET, time, _TIME.size))
    return float(seconds + microseconds / 1e6)


def _endpoint(address: tuple[Any, ...]) -> tuple[str, int]:
    """Return an address and port, the same for IPv4 through IPv6 as for IPv4."""
    return str(address[0]).removeprefix("::ffff:"), address[1]


def _duplicate(descriptor: int) -> socket.socket:
    duplicate = os.dup(descriptor)
    try:
        return socket.socket(fileno=duplicate)
    except OSError:  # no socket any more
        os.close(duplicate)
        raise


def _descriptors() -> Iterator[int]:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                yield int(entry.name)
