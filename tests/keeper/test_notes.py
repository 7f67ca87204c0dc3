"""What the keeper remembers for a controller that is away."""

from __future__ import annotations

import pytest

from bftrainer_slurm.keeper.notes import REMEMBERED_NOTES, Notes
from bftrainer_slurm.keeper.protocol import Note, NoteKind


@pytest.mark.parametrize("kind", [NoteKind.LEFT, NoteKind.CUT])
def test_what_a_task_has_left_is_forgotten_when_it_is_back_which_is_news_once(
    kind: NoteKind,
) -> None:
    notes, back = Notes(), Note(NoteKind.BACK, 1, 1)
    assert not notes.add(back)
    for task in (1, 2):
        notes.add(Note(kind, 1, task, f"n{task}"))
    assert [notes.add(back), notes.add(back)] == [True, False]
    assert [one.note for one in notes.since(0)] == [Note(kind, 1, 2, "n2"), back]


def test_hints_that_anybody_can_send_push_no_news_of_members_out() -> None:
    notes = Notes()
    failed = Note(NoteKind.FAILED, 1, 1, "n1", text="boom")
    notes.add(failed)
    for _ in range(REMEMBERED_NOTES + 1):
        notes.add(Note(NoteKind.GONE, 1, 1, "n1"))
    assert notes.since(0)[0].note == failed
    assert len(notes.since(0)) == REMEMBERED_NOTES + 1
