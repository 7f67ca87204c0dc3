"""A generation's store as torchrun's agent sees it: it ends with the generation, without errors.

The agent ends at an error of its store, and waits in the store for agents that are gone. But when
a generation has ended, the next one is on its way, and any answer will do until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from torch.distributed import (  # type: ignore[attr-defined]
    DistError,
    Store,
    TCPStore,
)

_Answer = TypeVar("_Answer")
_LOOK_S, _LAST_LOOKS_S = 0.002, 0.2  # from one look to the next, at a wait's beginning and later
_PART = 0.1  # of the time that it has waited
_AT_THE_END = "terminal_state"  # in the key of the barrier at which agents wait for each other
_PASSED = "bftrainer/passed"  # how many guests have passed it
_PATIENCE_S = 2.0  # in which they do
_ALONE = b"[0, 1, 0, 1]"  # what torchrun stores for an agent: its ranks, and of how many


class GenerationStore(Store):
    """The calls of torchrun's agent: its ranks at the beginning, its exit barrier at the end."""

    def __init__(
        self,
        store: TCPStore,
        ended: Callable[[], bool],
        finishing: Callable[[], None] = lambda: None,
        guests: int = 0,
    ) -> None:
        super().__init__()
        self._guests = guests  # other agents, whose store is in this process
        self._all_finished = False
        self._finishing = finishing  # called when this node's processes have ended well
        self._store: Any = store  # torch's stubs lack half of it
        self._ended = ended
        self._own = b""

    def close(self) -> None:
        """Let go of the store; on its host this closes it, when its guests have passed the end."""
        if self._all_finished and self._guests:
            until_s = time.monotonic() + _PATIENCE_S
            self._look_until(
                lambda store: time.monotonic() > until_s or store.add(_PASSED, 0) >= self._guests
            )
        self._store = None

    def set(self, key: str, value: str | bytes) -> None:  # torch's is str, its agent sets bytes
        """Set a key."""
        self._own = value if isinstance(value, bytes) else value.encode()
        self._try(lambda store: store.set(key, value), None)

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        """Set several keys."""
        self._try(lambda store: store.multi_set(keys, values), None)

    def get(self, key: str) -> bytes:
        """Return a key's value as soon as it is set."""
        self.wait([key])
        return self._try(lambda store: store.get(key), _ALONE)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return several keys' values as soon as they are set."""
        self.wait(keys)
        return self._try(lambda store: store.multi_get(keys), [self._own] * len(keys))

    def add(self, key: str, amount: int) -> int:
        """Add to a number, and return it."""
        if _AT_THE_END in key:
            self._finishing()
        return self._try(lambda store: store.add(key, amount), 0)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until keys are set, or the generation has ended."""
        self._look_until(lambda store: store.check(keys))
        if any(_AT_THE_END in key for key in keys):
            self._all_finished = True
            self._try(lambda store: store.add(_PASSED, int(not self._guests)), 0)

    def _look_until(self, is_over: Callable[[Any], bool]) -> None:
        """Look again and again; torch's own wait logs two warnings each time that it gives up."""
        since_s = time.monotonic()
        while not self._try(is_over, True):
            waited_s = time.monotonic() - since_s
            time.sleep(min(max(_LOOK_S, waited_s * _PART), _LAST_LOOKS_S))

    def _try(self, call: Callable[[Any], _Answer], otherwise: _Answer) -> _Answer:
        if self._store is None or self._ended():
            return otherwise
        try:
            return call(self._store)
        except DistError:
            return otherwise
