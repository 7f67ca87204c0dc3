"""The notes that the keeper remembers, so that a controller that was away reads what it missed.

Bounded; reports of progress and announced submissions have a bound of their own, and cannot push
other notes out.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable

from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote

REMEMBERED = 20_000
REMEMBERED_PROGRESS = 5_000


_MANY = (NoteKind.PROGRESS, NoteKind.ANNOUNCED)


class Notes:
    """What was told, in order. ``clock`` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._progress: deque[NumberedNote] = deque(maxlen=REMEMBERED_PROGRESS)
        self._others: deque[NumberedNote] = deque(maxlen=REMEMBERED)
        self.last = 0  # number of the last one

    def add(self, note: Note) -> None:
        """Remember a note."""
        self.last = next(self._numbers)
        kept = self._progress if note.kind in _MANY else self._others
        kept.append(NumberedNote(self.last, self._clock(), note))

    def since(self, after: int) -> list[NumberedNote]:
        """Return the notes with a number above ``after`` that are still remembered, in order."""
        fresh = (_newer(self._progress, after), _newer(self._others, after))
        return list(heapq.merge(*fresh, key=lambda numbered: numbered.number))


def _newer(kept: deque[NumberedNote], after: int) -> Iterable[NumberedNote]:
    newest_first = itertools.takewhile(lambda numbered: numbered.number > after, reversed(kept))
    return reversed(list(newest_first))
