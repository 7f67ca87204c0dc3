"""The notes that the keeper stores, so that a controller that was away reads what it missed.

Hints, members' news, and all progress and announcements have a limit each, so that a flood of one
kind pushes out no note of another.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Iterable, Sequence

from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote

REMEMBERED_NOTES = 20_000
REMEMBERED_PROGRESS = 5_000

_NEWS = (NoteKind.FAILED, NoteKind.FINISHED, NoteKind.REFORMED, NoteKind.SCRIPT)
_STANDS = (NoteKind.LEFT, NoteKind.CUT)  # until the task is heard again, or gone
_MANY = (NoteKind.PROGRESS, NoteKind.ANNOUNCED)


class Notes:
    """The stored notes, in order."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._progress: deque[NumberedNote] = deque(maxlen=REMEMBERED_PROGRESS)
        self._hints: deque[NumberedNote] = deque(maxlen=REMEMBERED_NOTES)
        self._news: deque[NumberedNote] = deque(maxlen=REMEMBERED_NOTES)
        self._standing: dict[tuple[int, int], NumberedNote] = {}  # by array and task
        self.last = 0  # number of the last one

    def add(self, note: Note) -> bool:
        """Remember a note; return whether it is news.

        What a task has left, or was cut off from, is forgotten when it is back: whoever reads the
        notes later compares no times of two hosts to know whether they are about its present stay.
        That a task is back is no news if nothing of that kind stands.
        """
        of = note.array, note.task
        before = self._standing.get(of)
        stands = before is not None and before.note.kind in _STANDS
        if note.kind is NoteKind.BACK and not stands:
            return False
        self.last = next(self._numbers)
        if note.kind in _STANDS or note.kind is NoteKind.BACK:
            self._standing.pop(of, None)
            self._standing[of] = NumberedNote(self.last, time.time(), note)
            if len(self._standing) > REMEMBERED_NOTES:
                del self._standing[next(iter(self._standing))]
            return True
        many = self._progress if note.kind in _MANY else self._hints
        kept = self._news if note.kind in _NEWS else many
        kept.append(NumberedNote(self.last, time.time(), note))
        return True

    def since(self, after: int) -> list[NumberedNote]:
        """Return the notes with a number above ``after`` that are still stored, in order."""
        kept = (self._progress, self._hints, self._news, [*self._standing.values()])
        fresh = [_newer(one, after) for one in kept]
        return list(heapq.merge(*fresh, key=lambda numbered: numbered.number))


def _newer(kept: Sequence[NumberedNote], after: int) -> Iterable[NumberedNote]:
    newest_first = itertools.takewhile(lambda numbered: numbered.number > after, reversed(kept))
    return reversed(list(newest_first))
