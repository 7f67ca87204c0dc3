import math

import pytest

from bftrainer_slurm.keeper.protocol import (
    MAX_ANSWER,
    MAX_ERROR,
    MAX_MEASURES,
    NOTE,
    Note,
    NoteKind,
    NumberedNote,
    ProtocolError,
    format_hint,
    good_measures,
    parse_address,
    parse_hint,
    read_line,
    write_line,
)

NOTES = [
    Note(NoteKind.UP, 12, 3, "n1"),
    Note(NoteKind.LEAVING, 12, 3, "node-17.rack_2"),
    Note(NoteKind.GONE, 1, 0, "n1"),
    Note(NoteKind.SUBMITTED),
    Note(NoteKind.PROGRESS, 12, measures=(("samples", 1e6), ("loss", -0.25))),
    Note(NoteKind.REFORMED, 12, measures=(("generation", 5), ("nodes", 3))),
    Note(NoteKind.SCRIPT, 12, measures=(("leads", 3), ("trains", 1))),
    Note(NoteKind.FINISHED, 12, 3),
    Note(NoteKind.FAILED, 12, 3, "n1", text="File 'train.py', line 7\nüñí \x1b[31m 100 %\n"),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.kind.value)
def test_a_note_is_read_back_as_it_was_written(note: Note) -> None:
    numbered = NumberedNote(7, 1795214324.926878, note)
    assert read_line(write_line({"note": numbered}), NOTE) == numbered


@pytest.mark.parametrize("note", NOTES[1:4], ids=lambda note: note.kind.value)
def test_a_hint_is_read_back_as_it_was_written(note: Note) -> None:
    assert parse_hint(format_hint(note).split()) == note


@pytest.mark.parametrize(
    "line",
    [
        "",
        "gone",
        "gone 1 2",
        "gone 1 2 n1 more",
        "gone -1 2 n1",
        "gone 1 2 n1;reboot",
        "gone 1 2 ../n1",
        "gone 9999999999999999 2 n1",
        "gone 1 2 " + "n" * 65,
        "gone x y z",
        "drop table stays",
    ],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError):
        parse_hint(line.split())


@pytest.mark.parametrize(
    "line", ["up 1 2 n1", "progress 1 samples=5", "failed 1 2 n1 oops", "reformed 1 generation=1"]
)
def test_what_only_members_may_tell_is_no_hint(line: str) -> None:
    with pytest.raises(ProtocolError):
        parse_hint(line.split())


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "king"},
        {"kind": "gone", "node": "../n1"},
        {"kind": "progress", "measures": [["samples", math.nan]]},
        {"kind": "progress", "measures": [["<b>", 2]]},
        {"kind": "progress", "measures": [[f"m{chr(97 + i)}", 1] for i in range(MAX_MEASURES + 1)]},
        {"kind": "failed", "text": 7},
    ],
    ids=str,
)
def test_what_is_no_note_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        read_line(write_line({"note": {"number": 1, "time_s": 1.0, "note": fields}}), NOTE)


def test_of_a_long_failure_the_end_is_told() -> None:
    note = Note(NoteKind.FAILED, 1, 2, "n1", text="\U0001f600" * (MAX_ERROR - 7) + "\ud800the end")
    line = write_line({"note": NumberedNote(10**15 - 1, 1795214324.926878, note)})
    assert len(line) < MAX_ANSWER
    assert read_line(line, NOTE).note.text.endswith("?the end")


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_address(text)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e15, 10**400, -(10**400), True, "1"]
)
def test_what_is_no_number_of_sensible_size_is_left_out(value: object) -> None:
    assert good_measures({"samples": 3, "loss": value}) == (("samples", 3.0),)
