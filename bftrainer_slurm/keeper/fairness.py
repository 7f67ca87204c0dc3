"""Fairness among connections: limits, turns, which connection is dropped, and what was refused.

An honest connection sends its request or proof at once. When too many have not done so, one is
dropped: the oldest one of the address that has most of them. So nobody can keep others out by
waiting. Users take turns, one piece of work each, so that nobody waits for all of another user's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
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
# Bytes that wait to be sent; with more, nothing is done for this user until some are read. So the
# list of all members, sent to each of thousands, does not add up to MAX_KEPT.
MUCH_UNSENT = MAX_KEPT // 4
HELD_S = 0.01
REMEMBERED_ORIGINS = 1_000
SLICE_S = 0.002  # after this long the event loop looks at its sockets again,
PIECES = 20  # or after this many pieces of work

logger = logging.getLogger(__name__)

Key = TypeVar("Key")


@dataclass(slots=True)
class Share:
    """What one user takes up in the keeper now."""

    user: int
    members: Counter[int] = field(default_factory=Counter)  # by trainer
    messages: int = 0  # since the last sweep
    kept: int = 0  # bytes
    unsent: int = 0  # those of them that wait to be sent

    def check(self, array: int) -> None:
        """Check that one more member of a trainer may join. Raises NotAdmittedError."""
        full = (
            (self.members[array] >= MAX_MEMBERS_OF_RUN, "this trainer has too many members"),
            (self.members.total() >= MAX_MEMBERS, "this user has too many members"),
            (array not in self.members and len(self.members) > MAX_RUNS, "too many trainers"),
        )
        for is_full, why in full:
            if is_full:
                raise NotAdmittedError("too_many", why, True)

    def lose(self, array: int) -> None:
        """A member of this trainer has gone."""
        self.members[array] -= 1
        if not self.members[array]:
            del self.members[array]


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


class Places:
    """Places for ``most`` readers at the same time, of which each owner has ``of_one`` at most."""

    def __init__(self, most: int, of_one: int) -> None:
        self._most, self._of_one = most, of_one
        self._taken: Counter[Hashable] = Counter()

    @contextmanager
    def one(self, owner: Hashable) -> Iterator[None]:
        """Take a place. Raises NotAdmittedError."""
        if self._taken.total() >= self._most or self._taken[owner] >= self._of_one:
            raise NotAdmittedError("too_many", "too many read the status; ask again", True)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


class Turns:
    """Work that waits: owners take turns, and each owner's work is done in order.

    While ``holds_up`` says so of an owner, that one's work waits.
    """

    def __init__(self, holds_up: Callable[[Hashable], bool] = lambda whose: False) -> None:
        self._loop = asyncio.get_running_loop()
        self._holds_up = holds_up
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        self._held: dict[Hashable, deque[Callable[[], None]]] = {}
        self._called = False

    def add(self, whose: Hashable, work: Callable[[], None]) -> None:
        """Do a small piece of work when it is its owner's turn."""
        queues = self._held if whose in self._held else self._waiting
        queues.setdefault(whose, deque()).append(work)
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
                if self._holds_up(whose):
                    self._hold(whose, pieces)
                    continue
                piece = pieces.popleft()
                if pieces:
                    self._waiting[whose] = pieces
                piece()
        finally:
            self._call()

    def _hold(self, whose: Hashable, pieces: deque[Callable[[], None]]) -> None:
        if not self._held:
            self._loop.call_later(HELD_S, self._release)
        self._held[whose] = pieces

    def _release(self) -> None:
        self._waiting.update(self._held)
        self._held.clear()
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
