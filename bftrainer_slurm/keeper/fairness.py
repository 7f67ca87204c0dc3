"""Fairness among connections: limits, turns, which connection is dropped, and what was refused.

An honest connection sends its request or proof at once. When too many have not done so, one is
dropped: the oldest one of the address that has most of them. So nobody can keep others out by
waiting. Users take turns, one piece of work each, so that nobody waits for all of another user's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bftrainer_slurm.keeper.gate import NotAdmittedError

# Limits of one trainer:
MAX_MEMBERS_OF_RUN = 4_096
# Limits of one user:
MAX_RUNS = 1_000
MAX_MEMBERS = 10_000
MAX_MESSAGES_OF_USER = 30_000  # between two sweeps
MAX_KEPT = 128 * 1024 * 1024  # bytes that wait to be sent or handled
REMEMBERED_ORIGINS = 1_000
SLICE_S = 0.002  # after this long the event loop looks at its sockets again,
PIECES = 20  # or after this many pieces of work

logger = logging.getLogger(__name__)

Key = TypeVar("Key")


@dataclass(slots=True)
class Share:
    """What one user takes up in the keeper now."""

    user: int
    members: int = 0
    of_run: Counter[int] = field(default_factory=Counter)  # members, by trainer
    messages: int = 0  # since the last sweep
    kept: int = 0  # bytes

    def check(self, array: int) -> None:
        """Check that one more member of a trainer may join. Raises NotAdmittedError."""
        full = (
            (self.of_run[array] >= MAX_MEMBERS_OF_RUN, "this trainer has too many members"),
            (self.members >= MAX_MEMBERS, "this user has too many members"),
            (not self.of_run[array] and len(self.of_run) > MAX_RUNS, "too many trainers"),
        )
        for is_full, why in full:
            if is_full:
                raise NotAdmittedError("too_many", why, True)

    def gain(self, array: int) -> None:
        """A member of this trainer has joined."""
        self.members += 1
        self.of_run[array] += 1

    def lose(self, array: int) -> None:
        """A member of this trainer has gone."""
        self.members -= 1
        self.of_run[array] -= 1
        if not self.of_run[array]:
            del self.of_run[array]


class Refusals:
    """The refused requests; ``counts`` is how many there were of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def add(self, kind: str, origin: str, why: str) -> None:
        """Count one, and log it if it is the first of its kind from this ``origin``."""
        self.counts[kind] += 1
        if (kind, origin) in self._said:
            return
        self._said[kind, origin] = None
        if len(self._said) > REMEMBERED_ORIGINS:
            self._said.popitem(last=False)
        logger.warning(
            "refused (%s), from %s: %s; more of these are only counted", kind, origin, why
        )


class Turns:
    """Work that waits: owners take turns, and each owner's work is done in order."""

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


class Waiting(Generic[Key]):
    """At most ``most`` connections that wait; ``evict`` ends one of them."""

    def __init__(self, most: int, evict: Callable[[Key], None]) -> None:
        self._most = most
        self._evict = evict
        self._address_of: dict[Key, str] = {}
        self._at: dict[str, dict[Key, None]] = {}  # those of each address, the oldest first

    def __len__(self) -> int:
        return len(self._address_of)

    def add(self, key: Key, address: str) -> None:
        """Add a connection; if there are too many, evict another one."""
        if len(self) >= self._most:
            greediest = max(self._at.values(), key=len)
            oldest = next(iter(greediest))
            self.discard(oldest)
            self._evict(oldest)
        self._address_of[key] = address
        self._at.setdefault(address, {})[key] = None

    def discard(self, key: Key) -> None:
        """Remove a connection, if it is here."""
        address = self._address_of.pop(key, None)
        if address is None:
            return
        mates = self._at[address]
        del mates[key]
        if not mates:
            del self._at[address]


def address_of(peername: object) -> str:
    """Return the address of the other end, from a transport's ``peername``."""
    return str(peername[0]) if isinstance(peername, tuple) and peername else "?"
