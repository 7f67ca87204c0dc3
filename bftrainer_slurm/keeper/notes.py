"""The notes that the keeper stores, so that a controller that was away reads what it missed.

Hints, members' news, and all progress and announcements have a limit each, so that a flood of one
kind pushes out no note of another.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Iterable

from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote

REMEMBERED_NOTES = 20_000
REMEMBERED_PROGRESS = 5_000

_NEWS = (NoteKind.FAILED, NoteKind.FINISHED, NoteKind.LEFT, NoteKind.REFORMED)
_MANY = (NoteKind.PROGRESS, NoteKind.ANNOUNCED)


class Notes:
    """The stored notes, in order."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._progress: deque[NumberedNote] = deque(maxlen=REMEMBERED_PROGRESS)
        self._hints: deque[NumberedNote] = deque(maxlen=REMEMBERED_NOTES)
        self._news: deque[NumberedNote] = deque(maxlen=REMEMBERED_NOTES)
        self.last = 0  # number of the last one

    def add(self, note: Note) -> None:
        """Remember a note."""
        self.last = next(self._numbers)
        many = self._progress if note.kind in _MANY else self._hints
        kept = self._news if note.kind in _NEWS else many
        kept.append(NumberedNote(self.last, time.time(), note))

    def since(self, after: int) -> list[NumberedNote]:
        """Return the notes with a number above ``after`` that are still stored, in order."""
        kept = (self._progress, self._hints, self._news)
        fresh = [_newer(one, after) for one in kept]
        return list(heapq.merge(*fresh, key=lambda numbered: numbered.number))


def _newer(kept: deque[NumberedNote], after: int) -> Iterable[NumberedNote]:
    newest_first = itertools.takewhile(lambda numbered: numbered.number > after, reversed(kept))
    return reversed(list(newest_first))
