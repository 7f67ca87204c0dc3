import pytest

from bftrainer_slurm.keeper.protocol import (
    MAX_NOTE,
    Note,
    NoteKind,
    NumberedNote,
    ProtocolError,
    format_note,
    format_numbered,
    parse_address,
    parse_hint,
    parse_note,
    parse_numbered,
)

NOTES = [
    Note(NoteKind.UP, 12, 3, "n1"),
    Note(NoteKind.LEAVING, 12, 3, "node-17.rack_2"),
    Note(NoteKind.GONE, 1, 0, "n1"),
    Note(NoteKind.SUBMITTED),
    Note(NoteKind.PROGRESS, 12, measures=(("samples", 1e6), ("loss", -0.25))),
    Note(NoteKind.REFORMED, 12, measures=(("generation", 5), ("nodes", 3), ("mode", 1))),
    Note(NoteKind.SCRIPT, 12, measures=(("leads", 3), ("trains", 1))),
    Note(NoteKind.FINISHED, 12, 3),
    Note(NoteKind.FAILED, 12, 3, "n1", text="File 'train.py', line 7\nüñí \x1b[31m 100 %\n"),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.kind.value)
def test_a_note_is_read_back_as_it_was_written(note: Note) -> None:
    assert parse_note(format_note(note).split()) == note


def test_a_numbered_note_is_read_back_as_it_was_written() -> None:
    numbered = NumberedNote(7, 1795214324.926878, NOTES[0])
    assert parse_numbered(format_numbered(numbered)) == numbered


@pytest.mark.parametrize(
    "line",
    [
        "",
        "up",
        "up 1 2",
        "up 1 2 n1 more",
        "up -1 2 n1",
        "up 1 2 n1;reboot",
        "up 1 2 ../n1",
        "up 9999999999999999 2 n1",
        "up 1 2 " + "n" * 65,
        "gone x y z",
        "progress 1",
        "progress 1 samples",
        "progress 1 samples=nan",
        "progress 1 samples=1e9",
        "progress 1 samples=1 <b>=2",
        "failed 1 2 n1 two words",
        "progress 1 " + " ".join(f"m{chr(97 + i)}=1" for i in range(9)),
        "drop table stays",
    ],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError):
        parse_note(line.split())


@pytest.mark.parametrize(
    "line", ["progress 1 samples=5", "failed 1 2 n1 oops", "reformed 1 generation=1"]
)
def test_what_only_members_may_tell_is_no_hint(line: str) -> None:
    with pytest.raises(ProtocolError):
        parse_hint(line.split())


def test_of_a_long_failure_the_end_is_told() -> None:
    line = format_note(Note(NoteKind.FAILED, 1, 2, "n1", text="ü" * 10_000 + "the end"))
    assert len(line) < MAX_NOTE
    assert parse_note(line.split()).text.endswith("the end")


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_address(text)
