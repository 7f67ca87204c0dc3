"""The lines of this version: who changes one gives the messages another version."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest

from bftrainer_slurm.keeper import messages, protocol
from bftrainer_slurm.keeper.messages import encode, parse_from_keeper, parse_from_member
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote, ProtocolError, write_line

MEMBERS = [
    '{"up":{"task":3,"node":"n3"}}',
    '{"join":{"identity":{"array":12,"task":3,"node":"n3","role":"agent","program":"ab",'
    '"step":2},"held":{"generation":2,"rank":0,"world":4}}}',
    '{"ready":{"cause":"failed","error":"oops","launcher":"torchrun"}}',
    '{"storeat":{"endpoint":"n1:5","generation":2}}',
    '{"leave":{}}',
    '{"measured":{"measures":[["steps",5.0]]}}',
    '{"finishing":{}}',
    '{"done":{}}',
    '{"left":{}}',
    '{"ping":{"number":1}}',
    '{"batch":{"doing":"leads","step":1,"what":"YQ==","done":[[0,0,"ab"]],'
    '"code":0,"beside":false}}',
]
CONTROLLERS = [
    '{"own":{"array":12,"uid":1001,"want":4,"sizes":{"only":[2,4],"step":1,"without":[]},'
    '"engaged":{"generation":5,"tasks":[1,8],"leader":3}}}',
    '{"tell":{"array":12,"what":"ended"}}',
    '{"part":{"array":12,"tasks":[0,1]}}',
    '{"lost":{"array":12,"task":1,"node":"n1"}}',
    '{"publish":{"length":2}}',
    '{"watch":{"identity":"ab","after":7}}',
    '{"show":{"what":"all","since_s":5}}',
]
KEEPERS = [
    '{"started":{"run":"12.1","first":true}}',
    '{"welcome":{}}',
    '{"answer":{"done":true}}',
    '{"serving":{"identity":"ab"}}',
    '{"change":{"planned":true,"why":"join"}}',
    '{"generation":{"number":2,"rank":1,"world":2,"store":"n0:5","members":[[0,"n0"],[3,"n3"]]}}',
    '{"released":{}}',
    '{"finished":{"code":0}}',
    '{"dropped":{"why":"silent"}}',
    '{"waits":{"why":"for n1"}}',
    '{"pong":{"number":1}}',
    '{"turn":{"do":"lead","step":-1,"what":"","done":[[0,1,"ab"]],"code":0}}',
]


@pytest.mark.parametrize(
    ("kinds", "read", "lines"),
    [
        (messages.FromMember, parse_from_member, MEMBERS),
        (messages.FromController, messages.parse_from_controller, CONTROLLERS),
        (messages.FromKeeper, parse_from_keeper, KEEPERS),
    ],
)
def test_each_message_of_this_version_is_one_line_and_is_read_back(
    kinds: Any, read: Callable[[bytes], Any], lines: list[str]
) -> None:
    assert protocol.VERSION == 13
    found = [read(line.encode()) for line in lines]
    assert [encode(message).decode() for message in found] == [f"{line}\n" for line in lines]
    assert {type(message) for message in found} == set(get_args(kinds))


def read_note(line: bytes) -> NumberedNote:
    return protocol.read_line(line, protocol.NOTE)


def note_of(**fields: object) -> bytes:
    return write_line({"note": {"number": 1, "time_s": 1.0, "note": fields}})


@pytest.mark.parametrize(
    "line",
    [
        b'{"generation":{"number":1}}',
        b'{"generation":{"number":1,"rank":0,"world":1,"store":null,"members":[1]}}',
        b'{"turn":{"do":"jump"}}',
        b'{"turn":[]}',
        b'{"released":1}',
        b'{"started":{"run":"a b","first":true}}',
        note_of(kind="king"),
        note_of(kind="gone", node="../n1"),
        note_of(kind="progress", measures=[["samples", math.nan]]),
        note_of(kind="progress", measures=[["<b>", 2]]),
        note_of(kind="progress", measures=[["m" * n, 1] for n in range(1, 12)]),
        note_of(kind="failed", text=7),
    ],
    ids=lambda line: ascii(line[:70]),
)
def test_what_the_keeper_would_not_say_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        (read_note if line.startswith(b'{"note"') else parse_from_keeper)(line)


def test_more_steps_than_a_script_may_have_are_refused() -> None:
    done = tuple((number, 0, "ab") for number in range(messages.MAX_STEPS + 1))
    most, more = messages.Batch("waits", done=done[1:]), messages.Batch("waits", done=done)
    assert parse_from_member(encode(most)) == most
    with pytest.raises(ProtocolError, match="too many steps"):
        parse_from_member(encode(more))


def test_of_a_long_failure_the_end_is_told() -> None:
    text = "\U0001f600" * (protocol.MAX_ERROR - 7) + "\ud800the end"
    note = Note(NoteKind.FAILED, 1, 2, "n1", text=text)
    line = write_line({"note": NumberedNote(10**15 - 1, 1795214324.926878, note)})
    assert len(line) < protocol.MAX_ANSWER
    assert read_note(line).note.text.endswith("?the end")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e15, 10**400, -(10**400), True, "1"]
)
def test_what_is_no_number_of_sensible_size_is_left_out(value: object) -> None:
    assert protocol.good_measures({"samples": 3, "loss": value}) == (("samples", 3.0),)


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:x", "host:65536", "a:1,", "a:1,b", "a:1,,b:2"]
)
def test_addresses_are_hosts_and_ports_with_commas_between_them(text: str) -> None:
    with pytest.raises(ProtocolError):
        protocol.parse_addresses(text)
