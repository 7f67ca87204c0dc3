"""The lines of this version: who changes one gives the messages another version."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from bftrainer_slurm.keeper import messages, protocol
from bftrainer_slurm.keeper.messages import encode, parse_from_keeper, parse_from_member
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote, ProtocolError, write_line
from bftrainer_slurm.sizes import Sizes

WHO = messages.Identity(12, 3, "n3", messages.Role.AGENT, program="ab", step=2)
FROM_MEMBER: list[tuple[messages.FromMember, str]] = [
    (messages.Up(3, "n3"), '{"up":{"task":3,"node":"n3"}}'),
    (
        messages.Join(WHO, messages.Held(2, 0, 4)),
        '{"join":{"identity":{"array":12,"task":3,"node":"n3","role":"agent","program":"ab",'
        '"step":2},"held":{"generation":2,"rank":0,"world":4}}}',
    ),
    (
        messages.Ready("failed", "oops", "torchrun"),
        '{"ready":{"cause":"failed","error":"oops","launcher":"torchrun"}}',
    ),
    (messages.StoreAt("n1:5", 2), '{"storeat":{"endpoint":"n1:5","generation":2}}'),
    (messages.Leave(), '{"leave":{}}'),
    (messages.Measured((("steps", 5.0),)), '{"measured":{"measures":[["steps",5.0]]}}'),
    (messages.Finishing(), '{"finishing":{}}'),
    (messages.Done(), '{"done":{}}'),
    (messages.Left(), '{"left":{}}'),
    (messages.Ping(1), '{"ping":{"number":1}}'),
    (
        messages.Batch("leads", 1, "YQ==", ((0, 0, "ab"),)),
        '{"batch":{"doing":"leads","step":1,"what":"YQ==","done":[[0,0,"ab"]],'
        '"code":0,"beside":false}}',
    ),
]
FROM_CONTROLLER: list[tuple[messages.FromController, str]] = [
    (
        messages.Own(12, 1001, 4, Sizes((2, 4)), messages.Engaged(5, frozenset({3, 0}), leader=3)),
        '{"own":{"array":12,"uid":1001,"want":4,"sizes":{"only":[2,4],"step":1,"without":[]},'
        '"engaged":{"generation":5,"tasks":[0,3],"leader":3}}}',
    ),
    (messages.Tell(12, "ended"), '{"tell":{"array":12,"what":"ended"}}'),
    (messages.Part(12, (0, 1)), '{"part":{"array":12,"tasks":[0,1]}}'),
    (messages.Lost(12, 1, "n1"), '{"lost":{"array":12,"task":1,"node":"n1"}}'),
    (messages.Publish(2), '{"publish":{"length":2}}'),
    (messages.Watch("ab", 7), '{"watch":{"identity":"ab","after":7}}'),
    (messages.Show("all", 5), '{"show":{"what":"all","since_s":5}}'),
]
FROM_KEEPER: list[tuple[messages.FromKeeper, str]] = [
    (messages.Started("12.1", True), '{"started":{"run":"12.1","first":true}}'),
    (messages.Welcome(), '{"welcome":{}}'),
    (messages.Answer(), '{"answer":{"done":true}}'),
    (messages.Serving("ab"), '{"serving":{"identity":"ab"}}'),
    (messages.Change(True, "join"), '{"change":{"planned":true,"why":"join"}}'),
    (
        messages.Generation(2, 1, 2, "n0:5", (messages.Peer(0, "n0"), messages.Peer(3, "n3"))),
        '{"generation":{"number":2,"rank":1,"world":2,"store":"n0:5",'
        '"members":[[0,"n0"],[3,"n3"]]}}',
    ),
    (messages.Released(), '{"released":{}}'),
    (messages.Finished(), '{"finished":{"code":0}}'),
    (messages.Dropped("silent"), '{"dropped":{"why":"silent"}}'),
    (messages.Waits("for n1"), '{"waits":{"why":"for n1"}}'),
    (messages.Pong(1), '{"pong":{"number":1}}'),
    (
        messages.Turn("lead", done=((0, 1, "ab"),)),
        '{"turn":{"do":"lead","step":-1,"what":"","done":[[0,1,"ab"]],"code":0}}',
    ),
]


MESSAGES: list[tuple[Any, Any, list[tuple[Any, str]]]] = [
    (messages.FromMember, parse_from_member, [*FROM_MEMBER]),
    (messages.FromController, messages.parse_from_controller, [*FROM_CONTROLLER]),
    (messages.FromKeeper, parse_from_keeper, [*FROM_KEEPER]),
]


def test_each_message_of_this_version_is_one_line_and_is_read_back() -> None:
    assert protocol.VERSION == 13
    for kinds, read, lines in MESSAGES:
        for message, line in lines:
            assert encode(message).decode() == f"{line}\n"
            assert read(line.encode()) == message
        assert {type(message) for message, _ in lines} == set(get_args(kinds))


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
