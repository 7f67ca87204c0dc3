"""Work of many users, done in turns: one piece of each, so that nobody waits for all of another's.

The loop looks at its sockets again after a few pieces or milliseconds, whatever is left to do then.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

SLICE_S = 0.002
PIECES = 20


class Turns:
    """What waits to be done, by whose it is; what is one's own is done in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        self._called = False

    def add(self, whose: Hashable, work: Callable[[], None]) -> None:
        """Do a small piece of work when it is its owner's turn."""
        self._waiting.setdefault(whose, deque()).append(work)
        self._call()

    def _call(self) -> None:
        if not self._called and self._waiting:
            self._called = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._called = False
        until_s = self._loop.time() + SLICE_S
        try:
            for _ in range(PIECES):
                if not self._waiting or self._loop.time() > until_s:
                    break
                whose, pieces = self._waiting.popitem(last=False)
                piece = pieces.popleft()
                if pieces:
                    self._waiting[whose] = pieces
                piece()
        finally:
            self._call()
