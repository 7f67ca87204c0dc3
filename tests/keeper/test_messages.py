"""The lines of this version: who changes one gives the messages another version."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from bftrainer_slurm.keeper import messages
from bftrainer_slurm.keeper.messages import (
    MAX_STEPS,
    Batch,
    Change,
    FromController,
    FromKeeper,
    FromMember,
    Generation,
    Held,
    Identity,
    Join,
    Measured,
    Peer,
    Ready,
    Role,
    StoreAt,
    Turn,
    encode,
    parse_from_controller,
    parse_from_keeper,
    parse_from_member,
)
from bftrainer_slurm.keeper.protocol import VERSION, ProtocolError
from bftrainer_slurm.sizes import Sizes

WHO = Identity(12, 3, "n3", Role.AGENT, program="ab", step=2)
FROM_MEMBER: list[tuple[FromMember, str]] = [
    (messages.Up(3, "n3"), '{"up":{"task":3,"node":"n3"}}'),
    (
        Join(WHO, Held(2, 0, 4)),
        '{"join":{"identity":{"array":12,"task":3,"node":"n3","role":"agent","program":"ab",'
        '"step":2},"held":{"generation":2,"rank":0,"world":4}}}',
    ),
    (
        Ready("failed", "oops", "torchrun"),
        '{"ready":{"cause":"failed","error":"oops","launcher":"torchrun"}}',
    ),
    (StoreAt("n1:5", 2), '{"storeat":{"endpoint":"n1:5","generation":2}}'),
    (messages.Leave(), '{"leave":{}}'),
    (Measured((("steps", 5.0),)), '{"measured":{"measures":[["steps",5.0]]}}'),
    (messages.Finishing(), '{"finishing":{}}'),
    (messages.Done(), '{"done":{}}'),
    (messages.Left(), '{"left":{}}'),
    (messages.Ping(1), '{"ping":{"number":1}}'),
    (
        Batch("leads", 1, "YQ==", ((0, 0, "ab"),)),
        '{"batch":{"doing":"leads","step":1,"what":"YQ==","done":[[0,0,"ab"]],'
        '"code":0,"beside":false}}',
    ),
]
FROM_CONTROLLER: list[tuple[FromController, str]] = [
    (
        messages.Own(12, 1001, 4, Sizes((2, 4))),
        '{"own":{"array":12,"uid":1001,"want":4,"sizes":{"only":[2,4],"step":1,"without":[]},'
        '"engaged":{"generation":0,"tasks":[],"leader":-1}}}',
    ),
    (
        messages.Own(12, 1001, 4, engaged=messages.Engaged(5, frozenset({3, 0}), leader=3)),
        '{"own":{"array":12,"uid":1001,"want":4,"sizes":{"only":[],"step":1,"without":[]},'
        '"engaged":{"generation":5,"tasks":[0,3],"leader":3}}}',
    ),
    (messages.Tell(12, "ended"), '{"tell":{"array":12,"what":"ended"}}'),
    (messages.Part(12, (0, 1)), '{"part":{"array":12,"tasks":[0,1]}}'),
    (messages.Lost(12, 1, "n1"), '{"lost":{"array":12,"task":1,"node":"n1"}}'),
    (messages.Publish(2), '{"publish":{"length":2}}'),
    (messages.Watch("ab", 7), '{"watch":{"identity":"ab","after":7}}'),
    (messages.Show("all", 5), '{"show":{"what":"all","since_s":5}}'),
]
FROM_KEEPER: list[tuple[FromKeeper, str]] = [
    (messages.Started("12.1", True), '{"started":{"run":"12.1","first":true}}'),
    (messages.Welcome(), '{"welcome":{}}'),
    (messages.Answer(), '{"answer":{"done":true}}'),
    (messages.Serving("ab"), '{"serving":{"identity":"ab"}}'),
    (Change(True, "join"), '{"change":{"planned":true,"why":"join"}}'),
    (
        Generation(2, 1, 2, "n0:5", (Peer(0, "n0"), Peer(3, "n3"))),
        '{"generation":{"number":2,"rank":1,"world":2,"store":"n0:5",'
        '"members":[[0,"n0"],[3,"n3"]]}}',
    ),
    (messages.Released(), '{"released":{}}'),
    (messages.Finished(), '{"finished":{"code":0}}'),
    (messages.Dropped("silent"), '{"dropped":{"why":"silent"}}'),
    (messages.Waits("for n1"), '{"waits":{"why":"for n1"}}'),
    (messages.Pong(1), '{"pong":{"number":1}}'),
    (
        Turn("lead", done=((0, 1, "ab"),)),
        '{"turn":{"do":"lead","step":-1,"what":"","done":[[0,1,"ab"]],"code":0}}',
    ),
]


def test_each_message_of_this_version_is_one_line_and_is_read_back() -> None:
    assert VERSION == 13
    readers: list[tuple[Any, Any, str]] = [(parse_from_controller, *one) for one in FROM_CONTROLLER]
    readers += [(parse_from_member, *one) for one in FROM_MEMBER]
    readers += [(parse_from_keeper, *one) for one in FROM_KEEPER]
    for read, message, line in readers:
        assert encode(message).decode() == f"{line}\n"
        assert read(line.encode()) == message
    assert {type(message) for message, _ in FROM_CONTROLLER} == set(get_args(FromController))
    assert {type(message) for message, _ in FROM_MEMBER} == set(get_args(FromMember))
    assert {type(message) for message, _ in FROM_KEEPER} == set(get_args(FromKeeper))


@pytest.mark.parametrize(
    "line",
    [
        b'{"generation":{"number":1}}',
        b'{"generation":{"number":1,"rank":0,"world":1,"store":null,"members":[1]}}',
        b'{"turn":{"do":"jump"}}',
        b'{"turn":[]}',
        b'{"released":1}',
        b'{"started":{"run":"a b","first":true}}',
    ],
    ids=range(6),
)
def test_what_the_keeper_would_not_say_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_from_keeper(line)


def test_more_steps_than_a_script_may_have_are_refused() -> None:
    done = tuple((number, 0, "ab") for number in range(MAX_STEPS + 1))
    assert parse_from_member(encode(Batch("waits", done=done[1:]))) == Batch("waits", done=done[1:])
    with pytest.raises(ProtocolError, match="too many steps"):
        parse_from_member(encode(Batch("waits", done=done)))
