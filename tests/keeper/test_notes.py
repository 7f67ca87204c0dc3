"""What the keeper remembers for a controller that is away."""

from __future__ import annotations

from bftrainer_slurm.keeper.notes import REMEMBERED_NOTES, Notes
from bftrainer_slurm.keeper.protocol import Note, NoteKind


def test_hints_that_anybody_can_send_push_no_news_of_members_out() -> None:
    notes = Notes()
    failed = Note(NoteKind.FAILED, 1, 1, "n1", text="boom")
    notes.add(failed)
    for _ in range(REMEMBERED_NOTES + 1):
        notes.add(Note(NoteKind.GONE, 1, 1, "n1"))
    assert notes.since(0)[0].note == failed
    assert len(notes.since(0)) == REMEMBERED_NOTES + 1
