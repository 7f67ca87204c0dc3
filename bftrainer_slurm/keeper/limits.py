"""What one user may take of the keeper, which connection is dropped, and what was refused.

An honest connection sends its request or proof at once. When too many have not done so, one is
dropped: the oldest one of the address that has most of them. So nobody can keep others out by
waiting.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from bftrainer_slurm.keeper.protocol import ProtocolError

# Limits of one trainer:
MAX_MEMBERS_OF_RUN = 4_096
# Limits of one user:
MAX_RUNS = 1_000
MAX_MEMBERS = 10_000
MAX_KEPT = 128 * 1024 * 1024  # bytes that wait to be sent or handled
# Messages a second: so many, and some for each member, which pings once a second.
MAX_MESSAGES_OF_USER = 1_000
MESSAGES_OF_MEMBER = 5
REMEMBERED_ORIGINS = 1_000

logger = logging.getLogger(__name__)

Key = TypeVar("Key")


@dataclass(slots=True)
class Share:
    """What one user takes up in the keeper; ``counted_s`` is since when messages are counted."""

    user: int
    counted_s: float
    messages: int = 0
    trainers: Counter[int] = field(default_factory=Counter)  # how many members each has
    members: int = 0
    kept: int = 0  # bytes

    def check(self, array: int) -> None:
        """Check that one more member of a trainer may join. Raises ProtocolError."""
        full = (
            (self.trainers[array] >= MAX_MEMBERS_OF_RUN, "this trainer has too many members"),
            (self.members >= MAX_MEMBERS, "this user has too many members"),
            (array not in self.trainers and len(self.trainers) > MAX_RUNS, "too many trainers"),
        )
        for is_full, why in full:
            if is_full:
                raise ProtocolError(why, "too_many")

    def add(self, array: int) -> None:
        """A member of this trainer has come."""
        self.trainers[array] += 1
        self.members += 1

    def lose(self, array: int) -> None:
        """A member of this trainer has gone."""
        self.members -= 1
        self.trainers[array] -= 1
        if not self.trainers[array]:
            del self.trainers[array]

    def floods(self, now_s: float) -> bool:
        """Whether one more message is one too many. What waited in the network comes at once."""
        self.messages += 1
        a_second = MAX_MESSAGES_OF_USER + MESSAGES_OF_MEMBER * self.members
        return self.messages > a_second * max(1.0, now_s - self.counted_s)


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
        """Take a place. Raises ProtocolError."""
        if self._taken.total() >= self._most or self._taken[owner] >= self._of_one:
            raise ProtocolError("too many read the status; ask again", "too_many")
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


def to_evict(waiting: Mapping[Key, str]) -> Key:
    """Return the oldest connection of the address that has most; those are by age."""
    greediest, _ = Counter(waiting.values()).most_common(1)[0]
    return next(key for key, address in waiting.items() if address == greediest)


def address_of(peername: object) -> str:
    """Return the address of the other end, from a transport's ``peername``."""
    return str(peername[0]) if isinstance(peername, tuple) and peername else "?"
