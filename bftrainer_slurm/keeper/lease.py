"""Which of several hosts works: a lease, in a folder that all of them see. Standard library only.

Clocks of hosts are not compared. Who holds the lease writes a count into it that grows, and the
others watch, each by its own clock, whether it still does. What is done with a lease is not here.

A host acts for ``VALID_S`` after the beginning of the last round in which it found its own name,
and a new one not before ``SETTLE_S``, which is longer, after it has put its name there. Whoever
had it before has seen the other's name by then, or has stopped because it saw nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROUND_S = 2.0  # between two rounds, and the longest one that counts
VALID_S = 8.0
PATIENCE_S = 8.0  # a lease that nobody has renewed for so long may be taken
SETTLE_S = 11.0


def boot_time_s() -> float:
    """Return the seconds since this host was booted, those that it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Text:
    """What the lease says: who has it, and how often it was renewed."""

    holder: str
    count: int


class Lease:
    """The lease in the file ``path``, as the process called ``name`` sees it.

    No two processes with one name may run at the same time: one that is started again renews what
    the one before it had, and acts once that one's word has no effect any more. ``clock`` counts
    seconds.
    """

    def __init__(self, path: Path, name: str, clock: Callable[[], float] = boot_time_s) -> None:
        self.path = path
        self._name = name
        self._clock = clock
        self._seen: bytes | None = None
        self._seen_s = clock()
        self._acts_s: float | None = None  # from then on, if it is still ours; None: it is not
        self._until_s = float("-inf")
        self.lost = False  # it was ours, and we may have acted

    def holds(self) -> bool:
        """Return whether this process may act now. Asks the clock, and nothing else."""
        now_s = self._clock()
        return self._acted(now_s) and now_s < self._until_s and not self.lost

    def round(self) -> None:
        """Look at the lease; renew it, claim it, or find that it is another's.

        To be called every ``ROUND_S`` seconds.

        Raises:
            OSError: the folder cannot be read or written now; the round does not count.
        """
        began_s = self._clock()
        text = self._read(began_s)
        if self._acted(began_s) and (
            began_s >= self._until_s or text is None or text.holder != self._name
        ):
            self.lost = True
        elif text is None or text.holder == self._name or self._silent(began_s):
            if self._acts_s is None or text is None or text.holder != self._name:
                self._acts_s = began_s + SETTLE_S
            self._renew(1 if text is None else text.count + 1, began_s)
        else:
            self._acts_s = None

    def _acted(self, now_s: float) -> bool:
        return self._acts_s is not None and self._acts_s <= now_s

    def _silent(self, now_s: float) -> bool:
        return now_s - self._seen_s >= PATIENCE_S

    def _renew(self, count: int, began_s: float) -> None:
        beside = self.path.with_name(f"{self.path.name}.{self._name}")
        with beside.open("w") as file:
            json.dump({"holder": self._name, "count": count}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        if self._clock() - began_s <= ROUND_S:
            self._until_s = began_s + VALID_S
        elif not self._acted(began_s):  # it may have overwritten what came meanwhile
            self._acts_s = self._clock() + SETTLE_S

    def _read(self, now_s: float) -> _Text | None:
        """Return what the lease says, None where there is none."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if raw != self._seen:
            self._seen, self._seen_s = raw, now_s
        try:
            said = json.loads(raw)
            return _Text(str(said["holder"]), int(said["count"]))
        except (ValueError, KeyError, TypeError):
            return _Text("", 0)  # nobody's, once it has not changed for a while
