"""What the keeper refuses on its wire, at each stage of a conversation, and counts.

``fuzz`` tries millions of others, of which this keeper has to survive each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from bftrainer_slurm.keeper.messages import Identity, Join, Role, encode
from bftrainer_slurm.keeper.protocol import (
    MAX_DOCUMENT,
    MAX_LINE,
    MAX_MEASURES,
    MAX_MESSAGE,
    VERSION,
    Note,
    NoteKind,
)
from tests.keeper.inside import Inside, keeper_inside
from tests.keeper.wire import NONCE, Wire


def joining(**changed: object) -> bytes:
    """The words of one that joins, with one of its fields changed."""
    said = json.loads(encode(Join(Identity(12, 1, "n1", Role.AGENT))))["join"]
    for name, value in changed.items():
        (said if name in said else said["identity"])[name] = value
    return json.dumps({"join": said}).encode()


def measured(*measures: object) -> dict[str, object]:
    return {"measured": {"measures": measures}}


# By what a connection was before, and how the keeper counts it: lines.
HOSTILE: dict[tuple[str, str], list[bytes]] = {
    ("anybody", "malformed"): [
        *(b"nonsense", b"", b"\xff\xfe", b"watch", b"drop table stays", b"status one two"),
        *(b"gone", b"gone 1 2", b"gone 1 2 n1 more", b"gone -1 2 n1", b"gone x y z"),
        *(b"gone 1 2 $(reboot)", b"gone 1 2 n1;reboot", b"gone 1 2 ../n1"),
        *(b"gone 9999999999999999 2 n1", b"gone 1 2 " + b"n" * 65),
        # Only members may tell these, or the controller ask for them.
        b'{"own":{"array":12,"uid":0,"want":3}}',
        *(b"up 12 0 n1", b"progress 1 samples=5", b"failed 1 2 n1 oops", b"reformed 1 nodes=1"),
        *(b"hello %d %b" % (VERSION, words) for words in (b"12 ab", b"12 " + b"AB" * 16)),
        *(b"hello %d %b %b" % (VERSION, who, NONCE.encode()) for who in (b"king", b"-1")),
    ],
    ("anybody", "version"): [
        *(b"member", b"member 10", b"hello", b"hello 10 12 ab", b"hello 99 12 ab cd"),
    ],
    ("anybody", "oversized"): [b"x" * (MAX_LINE + 1) + b"\n"],
    ("who has said hello", "bad_proof"): [
        *(b"proof " + proof for proof in (b" ", b"0" * 64, b"0" * 400, "é".encode() * 64)),
        b'{"own":{"array":12,"uid":0,"want":3}}',
    ],
    ("who has a proof", "malformed"): [
        *(b"{}", b"hello", b"[" * 6_000, b"\xff\xfe", b'{"ping":{"number":1}}', b'{"join":{}}'),
        *(joining(array=array) for array in (13, -1, True)),
        *(joining(task=task) for task in (10**16, "1")),
        *(joining(node=node) for node in ("n1;reboot", "n" * 65)),
        *(joining(program="a b"), joining(role="king"), joining(held={})),
        joining(held={"generation": 1, "rank": 3, "world": 3}),
        joining(held={"generation": 1, "rank": 0, "world": 10**9}),
    ],
    ("a member", "malformed"): [
        b'{"measured":{"measures":[["loss",NaN]]}}',
        *(
            json.dumps(said).encode()
            for said in (
                {"ready": {"cause": "fun", "error": ""}},
                {"ready": {"cause": "new", "error": 1}},
                {"storeat": {"endpoint": "somewhere", "generation": 1}},
                {"storeat": {"endpoint": "host:0", "generation": 1}},
                measured(["samples", 1e300]),
                measured(["a b", 1]),
                measured(["steps", 1], ["steps", 2]),
                measured(*([f"m{chr(97 + at)}", 1] for at in range(MAX_MEASURES + 1))),
                {"leave": 1},
                {"batch": {"doing": "leads", "step": "1"}},
                {"something": "else"},
                {"leave": {}, "done": {}},
                {"join": {}},
            )
        ),
    ],
    ("a member", "oversized"): [b'{"ping":' + b"1" * MAX_MESSAGE + end for end in (b"\n", b"")],
    ("the controller", "malformed"): [
        *(
            b"{}",
            b"status",
            b'{"own":{"array":12,"uid":"root","want":3}}',
            b'{"ping":{"number":1}}',
        ),
        b'{"part":{"array":12,"tasks":7}}',
        b'{"publish":{"length":%d}}' % (MAX_DOCUMENT + 1),
    ],
}
ROWS = [(*key, line) for key, lines in HOSTILE.items() for line in lines]


@pytest.fixture(scope="module")
def hardened() -> Iterator[Inside]:
    """One keeper that hears all of it."""
    with keeper_inside() as running:
        yield running


@pytest.mark.parametrize(
    ("who", "kind", "line"), ROWS, ids=[f"{who}: {ascii(line[:60])[2:-1]}" for who, _, line in ROWS]
)
def test_this_line_is_refused_and_counted(
    hardened: Inside, who: str, kind: str, line: bytes
) -> None:
    before = Counter(hardened.counts())
    speaks_for = {"anybody": "", "the controller": "controller"}.get(who, "12")
    with Wire(hardened, who=speaks_for) as wire:
        if who == "a member":
            assert wire.join() == {"welcome": {}}
        elif who in ("who has a proof", "the controller"):
            wire.prove()
        wire.send(line if kind == "oversized" else line + b"\n")
        answers = wire.read_all()
    assert Counter(hardened.counts()) - before == {kind: 1}
    # Who may try again is told why.
    told = kind != "oversized" and who != "a member"
    assert [list(one) for one in answers] == ([["refused"]] if told else [])
    if kind == "version":
        assert "install one BFTrainer on nodes and its host" in str(answers)


def test_who_proves_the_secret_is_welcome_with_a_proof_for_one_connection(keeper: Inside) -> None:
    with Wire(keeper) as first, Wire(keeper) as second:
        second.send(f"proof {first.proof}\n".encode())
        assert second.read_all() == [{"refused": "the proof is wrong"}]
        assert first.join() == {"welcome": {}}
    assert keeper.counts() == {"bad_proof": 1}


def test_a_members_words_out_of_turn_change_nothing(keeper: Inside) -> None:
    with Wire(keeper) as wire:
        wire.join()
        wire.say(storeat={"endpoint": "n1:1", "generation": 5})
        wire.say(measured={"measures": []})
        wire.say(batch={"doing": "waits"})
        assert wire.is_answered()


def test_a_hint_that_anybody_may_give_reaches_the_controller(keeper: Inside) -> None:
    hints = [
        Note(NoteKind.SUBMITTED),
        Note(NoteKind.LEAVING, 12, 3, "node-17.rack_2"),
        Note(NoteKind.GONE, 1, 0, "n1"),
    ]
    for hint in hints:
        keeper.client.tell(hint)
    assert keeper.notes(3) == hints


def test_a_flood_of_refusals_is_one_line_in_the_log(
    keeper: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        with Wire(keeper) as wire:
            wire.send(b"proof %b\n" % (b"0" * 64))
            wire.read()
    assert keeper.counts() == {"bad_proof": 20}
    (said,) = [record.getMessage() for record in caplog.records if "refused" in record.message]
    assert "from 127.0.0.1: to 12: the proof is wrong" in said
