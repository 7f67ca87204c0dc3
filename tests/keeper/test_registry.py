"""What the keeper takes from a member's connection, and what it refuses and counts."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.keeper.protocol import MAX_MEASURES, MAX_MESSAGE, VERSION, Note, NoteKind
from bftrainer_slurm.keeper.registry import MEMBER_SILENCE_S, SWEEP_S
from bftrainer_slurm.keeper.session import MAX_MESSAGES
from bftrainer_slurm.sizes import ANY
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside
from tests.keeper.wire import Wire


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside() as running:
        yield running


def test_who_proves_the_secret_is_welcome(keeper: Inside) -> None:
    with Wire(keeper.port) as wire:
        assert wire.join() == {"welcome": {}}
    assert keeper.counts() == {}


@pytest.mark.parametrize("proof", ["", "0" * 64, "0" * 400, "\u00e9" * 64, "\ud800"])
def test_a_wrong_proof_is_refused(keeper: Inside, proof: str) -> None:
    with Wire(keeper.port) as wire:
        wire.prove(proof or " ")
        assert wire.read_all() == [{"refused": "the proof is wrong"}]
    assert keeper.counts() == {"bad_proof": 1}


def test_a_proof_is_for_one_trainer_only(keeper: Inside) -> None:
    with Wire(keeper.port) as wire:
        assert "refused" in (wire.join(array=13) or {})
    with Wire(keeper.port) as wire:
        wire.say(own={"array": 12, "uid": 0, "want": 3})
        assert wire.read() == {"refused": "the proof is wrong"}
    assert keeper.counts() == {"malformed": 1, "bad_proof": 1}


def test_a_proof_is_of_no_use_on_another_connection(keeper: Inside) -> None:
    with Wire(keeper.port) as first, Wire(keeper.port) as second:
        second.prove(first.proof)
        assert second.read_all() == [{"refused": "the proof is wrong"}]


SUBMITTED = Note(NoteKind.SUBMITTED)


@pytest.mark.parametrize(
    "greeting", [b"member", b"member 10", b"hello", b"hello 10 12 ab", b"hello 99 12 ab cd"]
)
def test_a_member_of_another_version_is_told_what_to_do(keeper: Inside, greeting: bytes) -> None:
    with socket.create_connection(("127.0.0.1", keeper.port), 10) as connection:
        connection.sendall(greeting + b"\n")
        (answer,) = connection.makefile("rb").readlines()
    assert b"install one BFTrainer on nodes and its host" in answer
    older = greeting.startswith(b"member")
    assert answer.startswith(b'{"refused":{"why":' if older else b"refused ")
    assert keeper.counts() == {"version": 1}


NO_HELLO = [b"12 ab", b"king " + b"ab" * 16, b"-1 " + b"ab" * 16, b"12 " + b"AB" * 16]


@pytest.mark.parametrize("words", NO_HELLO, ids=lambda words: words[:8].decode())
def test_what_is_no_hello_ends_the_connection(keeper: Inside, words: bytes) -> None:
    with socket.create_connection(("127.0.0.1", keeper.port), 10) as connection:
        connection.sendall(b"hello %d %b\n" % (VERSION, words))
        assert connection.makefile("rb").read().startswith(b"refused ")
    assert keeper.counts() == {"malformed": 1}


NO_BEGINNING = [b"{}", b"hello", b"[" * 6_000, b"\xff\xfe", b'{"ping":{"number":1}}']


@pytest.mark.parametrize("line", NO_BEGINNING, ids=lambda line: ascii(line[:12]))
def test_what_is_no_beginning_ends_the_connection(keeper: Inside, line: bytes) -> None:
    with Wire(keeper.port) as wire:
        wire.prove()
        wire.send(line + b"\n")
        assert "refused" in (wire.read() or {})
        assert wire.read() is None
    assert keeper.counts() == {"malformed": 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"array": -1},
        {"array": True},
        {"task": 10**16},
        {"task": "1"},
        {"node": "n1;reboot"},
        {"node": "n" * 65},
        {"program": "a b"},
        {"role": "king"},
        {"held": {}},
        {"held": {"generation": 1, "rank": 3, "world": 3}},
        {"held": {"generation": 1, "rank": 0, "world": 10**9}},
    ],
    ids=str,
)
def test_a_field_that_cannot_be_ends_the_connection(
    keeper: Inside, changed: dict[str, object]
) -> None:
    with Wire(keeper.port) as wire:
        assert "refused" in (wire.join(**changed) or {})
    assert keeper.counts() == {"malformed": 1}


@pytest.mark.parametrize(
    "said",
    [
        {"ready": {"cause": "fun", "error": ""}},
        {"ready": {"cause": "new", "error": 1}},
        {"storeat": {"endpoint": "somewhere", "generation": 1}},
        {"storeat": {"endpoint": "host:0", "generation": 1}},
        {"measured": {"measures": [["samples", 1e300]]}},
        {"measured": {"measures": [["a b", 1]]}},
        {"measured": {"measures": [["steps", 1], ["steps", 2]]}},
        {"measured": {"measures": [[f"m{chr(97 + at)}", 1] for at in range(MAX_MEASURES + 1)]}},
        {"leave": 1},
        {"batch": {"doing": "leads", "step": "1"}},
        {"something": "else"},
        {"leave": {}, "done": {}},
        {"join": {}},
    ],
    ids=str,
)
def test_a_member_that_says_nonsense_is_hung_up_on(keeper: Inside, said: dict[str, object]) -> None:
    with Wire(keeper.port) as wire:
        wire.join()
        wire.say(**said)
        assert wire.read() is None
    assert keeper.counts() == {"malformed": 1}


def test_not_a_number_is_no_progress(keeper: Inside) -> None:
    with Wire(keeper.port) as wire:
        wire.join()
        wire.send(b'{"measured":{"measures":[["loss",NaN]]}}\n')
        assert wire.read() is None


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_an_oversized_message_ends_the_connection(keeper: Inside, end: bytes) -> None:
    with Wire(keeper.port) as wire:
        wire.join()
        wire.send(b'{"ping":' + b"1" * MAX_MESSAGE + end)
        assert wire.read() is None
    assert keeper.counts() == {"oversized": 1}


def test_words_out_of_turn_change_nothing(keeper: Inside) -> None:
    with Wire(keeper.port) as wire:
        wire.join()
        wire.say(storeat={"endpoint": "n1:1", "generation": 5})
        wire.say(measured={"measures": []})
        wire.say(batch={"doing": "waits"})
        wire.say(ping={"number": 1})
        assert wire.read() == {"pong": {"number": 1}}


def test_a_flood_of_messages_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.SWEEP_S", 1_000.0)  # all between two
    with keeper_inside() as keeper, Wire(keeper.port) as wire:
        wire.join()
        with suppress(ConnectionError):
            wire.send(b'{"batch":{"doing":"waits"}}\n' * (MAX_MESSAGES + 1))
        assert wire.read() is None
        assert keeper.counts() == {"flood": 1}


# The kernels on both sides together take fewer bytes than the answers to so many pings have.
LITTLE, MANY = 8_192, 800


def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.session.MAX_UNSENT", 0)
    with (
        keeper_inside(send_buffer=LITTLE) as keeper,
        Wire(keeper.port, buffer=LITTLE) as wire,
    ):
        wire.join()
        wire.ask_at_once(MANY)
        wait_until(lambda: keeper.counts() == {"slow": 1})
        wait_until(lambda: members(keeper) == 0)


def test_a_silent_member_is_lost_to_the_others(keeper: Inside) -> None:
    keeper.client.own(12, 0, 2)
    with Wire(keeper.port, task=1) as silent, Wire(keeper.port, task=2) as other:
        for wire in (silent, other):
            wire.join()
            wire.say(ready={"cause": "new", "error": ""})
        first = silent.read()
        assert first is not None
        assert first["generation"]["world"] == 2
        silent.say(storeat={"endpoint": "n1:1", "generation": 1})
        other.read()
        keeper.sweep(MEMBER_SILENCE_S + 0.1, 0.0)
        assert other.read() == {"change": {"planned": False, "why": "loss"}}
    assert keeper.counts() == {"silent": 1}


def test_members_that_fall_silent_together_are_not_told_of_each_others_loss(
    keeper: Inside,
) -> None:
    """It is the keeper's host that is cut off: what it says then would come with the network."""
    keeper.client.own(12, 0, 2)
    with Wire(keeper.port, task=1) as one, Wire(keeper.port, task=2) as later:
        for wire in (one, later):
            wire.join()
            wire.say(ready={"cause": "new", "error": ""})
        one.read()
        one.say(storeat={"endpoint": "n1:1", "generation": 1})
        later.read()
        keeper.sweep(MEMBER_SILENCE_S + 0.1, MEMBER_SILENCE_S - 1.9 * SWEEP_S)
        assert later.read_all() == one.read_all() == []
    assert keeper.counts() == {"silent": 2}


def test_a_stranger_who_names_a_trainer_and_falls_silent_is_no_member_of_it(
    keeper: Inside,
) -> None:
    with Wire(keeper.port, task=1) as member, Wire(keeper.port, task=2):
        member.join()
        keeper.sweep(MEMBER_SILENCE_S - 1.9 * SWEEP_S, MEMBER_SILENCE_S + 0.1)
        member.say(ping={"number": 1})
        assert member.read() == {"pong": {"number": 1}}


def test_all_is_heard_that_was_said_before_the_end(keeper: Inside) -> None:
    """Else who has ended well could be taken for lost, and the others' last collectives be cut."""
    keeper.client.own(12, 0, 2)
    with Wire(keeper.port, task=2) as other:
        with Wire(keeper.port, task=1) as first:
            for wire in (first, other):
                wire.join()
                wire.say(ready={"cause": "new", "error": ""})
            first.read()
            first.say(storeat={"endpoint": "n1:1", "generation": 1})
            other.read()
            last = (
                b'{"ping":{"number":1}}\n',
                b'{"measured":{"measures":[["steps",5]]}}\n',
                b'{"done":{}}\n',
            )
            first.send(b"".join(last))
        wait_until(lambda: members(keeper) == 1)
        other.say(ping={"number": 1})
        assert other.read() == {"pong": {"number": 1}}
    assert keeper.counts() == {}


def test_who_proves_nothing_is_hung_up_on(keeper: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.PROOF_S", 0.5)
    with Wire(keeper.port) as wire:
        assert wire.read() is None
    assert keeper.counts() == {"unproven": 1}


@pytest.fixture
def narrow_keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.MAX_UNPROVEN", 2)
    monkeypatch.setattr("bftrainer_slurm.keeper.limits.MAX_MEMBERS", 2)
    monkeypatch.setattr("bftrainer_slurm.keeper.server.MAX_READERS", 0)
    with keeper_inside() as running:
        yield running


def test_of_too_many_strangers_the_first_has_to_go(narrow_keeper: Inside) -> None:
    port = narrow_keeper.port
    with Wire(port) as first, Wire(port) as second, Wire(port) as third:
        assert first.read() is None
        for honest in (second, third):
            assert "welcome" in (honest.join() or {})


def test_who_says_nothing_keeps_nobody_out(narrow_keeper: Inside) -> None:
    address = ("127.0.0.1", narrow_keeper.port)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(5)]
        with Wire(narrow_keeper.port) as honest:
            assert "welcome" in (honest.join() or {})
        assert silent[0].recv(1) == b""
    assert narrow_keeper.refusals["too_many"] >= 3


def test_what_strangers_ask_in_vain_is_counted(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = KeeperClient(f"127.0.0.1:{keeper.port}", "guessed")
    with pytest.raises(KeeperError, match="another key"):
        stranger.own(12, 0, 2)
    for asked in (b"drop table stays\n", b"x" * 600, b"sta"):
        if not asked.endswith((b"\n", b"x")):
            monkeypatch.setattr("bftrainer_slurm.keeper.registry.FIRST_LINE_S", 0.2)
        with socket.create_connection(("127.0.0.1", keeper.port), 10) as connection:
            connection.sendall(asked)
            connection.recv(100)
    assert keeper.counts() == {"malformed": 1, "oversized": 1, "mute": 1}


def test_one_user_cannot_have_all_the_members(narrow_keeper: Inside) -> None:
    port = narrow_keeper.port
    with ExitStack() as stack:
        for task in (1, 2):
            assert "welcome" in (stack.enter_context(Wire(port, task=task)).join() or {})
        last = stack.enter_context(Wire(port, task=3))
        assert last.join() == {"refused": "this user has too many members"}


def test_a_reader_of_the_status_too_many_is_told_so(narrow_keeper: Inside) -> None:
    with pytest.raises(KeeperError, match="ask again"):
        narrow_keeper.client.status()


def test_a_flood_of_refusals_is_one_line_in_the_log(
    keeper: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        with Wire(keeper.port) as wire:
            wire.prove("0" * 64)
            wire.read()
    assert keeper.counts() == {"bad_proof": 20}
    (said,) = [record.getMessage() for record in caplog.records if "refused" in record.message]
    assert "from 127.0.0.1: to 12: the proof is wrong" in said


def test_progress_reaches_the_controller_but_not_faster_than_it_should(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.PROGRESS_EVERY_S", 600.0)
    with Wire(keeper.port) as wire:
        wire.join()
        for samples in range(100):
            wire.say(measured={"measures": [["samples", samples], ["pause_s", 0.125]]})
        wire.say(ping={"number": 1})
        wire.read()
    keeper.client.tell(SUBMITTED)
    first, second = keeper.notes(2)
    assert dict(first.measures) == {"samples": 0.0, "pause_s": 0.125}
    assert first.array == 12
    assert second == SUBMITTED


def test_the_end_of_a_run_ends_its_members_connections(keeper: Inside) -> None:
    with Wire(keeper.port) as wire:
        wire.join()
        keeper.client.say(12, "ended")
        assert wire.read_all() == [{"dropped": {"why": "the run has ended"}}]
    assert runs(keeper) == 0


def runs(keeper: Inside) -> int:
    return told(keeper, "runs")


def members(keeper: Inside) -> int:
    return told(keeper, "members")


def told(keeper: Inside, number: str) -> int:
    keeper.client.publish({})
    _, status = keeper.client.status()
    assert status is not None
    return int(status["keeper"][number])


def test_while_much_waits_for_a_user_their_group_is_told_nothing_more(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.MUCH_KEPT", 0)
    keeper.client.own(12, 0, 1)
    with Wire(keeper.port, task=1) as first, Wire(keeper.port, task=2) as other:
        for wire in (first, other):
            wire.join()
        line = b'{"ping":{"number":1}}\n'
        other.send(line[:-1])  # until it is whole, it waits
        (share,) = keeper.registry._shares.values()
        wait_until(lambda: share.kept > 0)
        first.say(ready={"cause": "new", "error": ""})
        first.say(ping={"number": 2})
        assert first.read() == {"pong": {"number": 2}}
        other.send(line[-1:])
        assert "generation" in (first.read() or {})


# After the keeper was away.


@pytest.mark.parametrize("there", [True, False])
def test_who_took_part_before_this_keeper_is_waited_for_while_slurm_runs_it(
    keeper: Inside, there: bool
) -> None:
    keeper.client.own(12, os.getuid(), 1, ANY, Engaged(5, frozenset(range(1, 120)), leader=3))
    for task in range(1 + there, 120):
        keeper.client.lost(12, task, f"n{task}")
    waits = keeper.member(200)
    waits.ready("new")
    if there:
        with pytest.raises(TimeoutError):
            waits.wait_generation(3)
        keeper.client.lost(12, 1, "n1")
    assert waits.wait_generation(120).number == 6


def test_a_keeper_that_has_been_told_of_a_trainer_knows_better_who_took_part(
    keeper: Inside,
) -> None:
    keeper.client.own(12, os.getuid(), 1)
    keeper.client.own(12, os.getuid(), 1, ANY, Engaged(5, frozenset({1})))
    member = keeper.member(200)
    member.ready("new")
    assert member.wait_generation(120).world == 1
