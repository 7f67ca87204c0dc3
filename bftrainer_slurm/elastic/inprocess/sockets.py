"""Closes the TCP connections that a library opened: the way to free a thread that waits in gloo.

gloo cannot be aborted (torch 2.13: ``ProcessGroup.abort`` does nothing there), but a collective
whose connection is shut down fails at once, here and at the peers. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path


class Connections:
    """The connections that are opened after this object is made, and before ``complete``.

    Those to the ports ``spared`` do not count: another thread may open one at any time.
    """

    def __init__(self, spared: Collection[int]) -> None:
        self._spared = spared
        self._before = frozenset(inode for _, inode in _sockets())
        self._ours: frozenset[str] | None = None

    def complete(self) -> None:
        """Say that connections opened from now on are others'."""
        self._ours = frozenset(inode for _, inode in _sockets()) - self._before

    def shut_down(self, gently: bool = False) -> None:
        """End them, from any thread; their owner still has to close the descriptors.

        ``gently``: their owner reads that they have ended, and can write until then. gloo then
        fails all that is under way, and closes them. If a write fails first, gloo now and then
        forgets it, and who waits for that send waits for its timeout, half an hour. (Of pairs of
        ranks that only ran collectives, 42 in 145 hung when cut, and none in 200 when cut gently.)

        Listening sockets stay as they are: gloo ends the process if accept fails.
        """
        how = socket.SHUT_RD if gently else socket.SHUT_RDWR
        for descriptor, inode in _sockets():
            ours = inode not in self._before if self._ours is None else inode in self._ours
            if ours:
                with contextlib.suppress(OSError):  # closed in between, or never connected
                    _shut_down(descriptor, inode, self._spared, how)


def _shut_down(descriptor: int, inode: str, spared: Collection[int], how: int) -> None:
    # A duplicate, as the number may be somebody else's file a moment later.
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        if (
            _inode(Path(f"/proc/self/fd/{duplicate.fileno()}")) == inode
            and duplicate.family in (socket.AF_INET, socket.AF_INET6)
            and not duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            and duplicate.getpeername()[1] not in spared
        ):
            duplicate.shutdown(how)


def _inode(entry: Path) -> str:
    return str(entry.readlink())


def _sockets() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            inode = _inode(entry)
        except OSError:
            continue
        if inode.startswith("socket:"):
            yield int(entry.name), inode
