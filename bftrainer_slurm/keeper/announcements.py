"""Datagrams that say that something was submitted, and nothing else.

Anybody can send them, and they may be lost: they lead to a hint, a few times a second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TEXT = b"announced\n"
_PAUSE_S = 0.2  # srun and salloc speak just before they submit; and many may submit at once


class Announcements(asyncio.DatagramProtocol):
    """Calls ``tell`` a moment after the first of some datagrams."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._waits = False

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take one; whatever else it says is left out."""
        if data == TEXT and not self._waits:
            self._waits = True
            self._loop.call_later(_PAUSE_S, self._pass_on)

    def _pass_on(self) -> None:
        self._waits = False
        self._tell()
