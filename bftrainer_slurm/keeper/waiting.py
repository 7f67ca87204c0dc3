"""Connections that have not said or proven anything yet: bounded, and the greediest first to go.

An honest one says its word at once. So where there are too many, the one that has waited longest
goes, of the address that holds most: nobody can keep others out by sitting in the door.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Waiting(Generic[Key]):
    """At most ``most`` connections; ``evict`` ends one of them."""

    def __init__(self, most: int, evict: Callable[[Key], None]) -> None:
        self._most = most
        self._evict = evict
        self._address_of: dict[Key, str] = {}
        self._at: dict[str, dict[Key, None]] = {}  # those of each address, the oldest first

    def __len__(self) -> int:
        return len(self._address_of)

    def add(self, key: Key, address: str) -> None:
        """Let one wait, in the place of another one if need be."""
        if len(self) >= self._most:
            greediest = max(self._at.values(), key=len)
            oldest = next(iter(greediest))
            self.discard(oldest)
            self._evict(oldest)
        self._address_of[key] = address
        self._at.setdefault(address, {})[key] = None

    def discard(self, key: Key) -> None:
        """It waits no more, if it did."""
        address = self._address_of.pop(key, None)
        if address is None:
            return
        mates = self._at[address]
        del mates[key]
        if not mates:
            del self._at[address]


def address_of(peername: object) -> str:
    """Return the address in what a transport says of its other end."""
    return str(peername[0]) if isinstance(peername, tuple) and peername else "?"
