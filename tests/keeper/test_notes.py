"""What the keeper remembers for a controller that is away."""

from __future__ import annotations

import pytest

from bftrainer_slurm.keeper.notes import REMEMBERED_NOTES, Notes
from bftrainer_slurm.keeper.protocol import Note, NoteKind


@pytest.mark.parametrize("kind", [NoteKind.LEFT, NoteKind.CUT])
def test_what_a_task_has_left_is_forgotten_when_it_is_back(kind: NoteKind) -> None:
    notes = Notes()
    notes.add(Note(kind, 1, 1, "n1"))
    notes.add(Note(kind, 1, 2, "n2"))
    notes.add(Note(NoteKind.BACK, 1, 1))
    kinds = [(one.note.kind, one.note.task) for one in notes.since(0)]
    assert kinds == [(kind, 2), (NoteKind.BACK, 1)]


def test_that_a_task_is_back_is_news_once_and_only_if_it_had_left_or_was_cut_off() -> None:
    notes = Notes()
    back = Note(NoteKind.BACK, 1, 1)
    assert not notes.add(back)
    notes.add(Note(NoteKind.CUT, 1, 1, "n1"))
    assert notes.add(back)
    assert not notes.add(back)
    assert [one.note for one in notes.since(0)] == [back]


def test_hints_that_anybody_can_send_push_no_news_of_members_out() -> None:
    notes = Notes()
    failed = Note(NoteKind.FAILED, 1, 1, "n1", text="boom")
    notes.add(failed)
    for _ in range(REMEMBERED_NOTES + 1):
        notes.add(Note(NoteKind.GONE, 1, 1, "n1"))
    assert notes.since(0)[0].note == failed
    assert len(notes.since(0)) == REMEMBERED_NOTES + 1
