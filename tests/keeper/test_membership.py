"""A member's client against a keeper over real sockets."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bftrainer_slurm.keeper import registry
from bftrainer_slurm.keeper.membership import (
    DroppedError,
    Membership,
    MembershipError,
    Notice,
    ReleasedError,
)
from bftrainer_slurm.keeper.messages import Change, Identity, Role
from bftrainer_slurm.keeper.protocol import LAUNCHERS, NoteKind, ProtocolError
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import STORE, Inside, keeper_inside, together

JOIN = Change(planned=True, why="join")
Pair = list[Membership]  # that train together


@pytest.fixture
def keeper(keeper: Inside) -> Inside:
    keeper.client.own(12, 0, 2)
    return keeper


@pytest.fixture
def pair(keeper: Inside) -> Pair:
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    return members


def test_when_a_node_joins_all_stop_and_go_on_with_it(keeper: Inside, pair: Pair) -> None:
    newcomer = keeper.member(3)
    newcomer.ready("new")
    wait_until(lambda: pair[0].change and pair[1].change)
    assert pair[0].change == pair[1].change == JOIN
    generations = [*together(pair, "change"), newcomer.wait_generation(120)]
    assert {one.rank: one.store for one in generations} == {0: None, 1: STORE, 2: STORE}
    assert {(one.world, one.members) for one in generations} == {(3, generations[0].members)}


def test_a_store_that_was_offered_between_two_connections_is_offered_again(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all would wait for it for a minute."""
    offer_store = Membership.offer_store

    def offer_between(member: Membership, generation: int, endpoint: str) -> None:
        member._on_loss(None)
        offer_store(member, generation, endpoint)
        member._on_welcome()

    monkeypatch.setattr(Membership, "offer_store", offer_between)
    members = [keeper.member(1), keeper.member(2)]
    assert {one.store for one in together(members)} == {None, STORE}
    assert members[0].change is members[1].change is None


def test_a_planned_leave_is_answered_when_the_leaver_is_out(
    keeper: Inside, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PART_S", 100.0)
    with ThreadPoolExecutor() as asking:
        left = asking.submit(keeper.client.part, 12, [2])
        wait_until(lambda: pair[0].change and pair[1].change)
        pair[1].ready("change")
        together(pair[:1], "change")
        with pytest.raises(ReleasedError):
            pair[1].wait_generation(120)
        assert left.result()


@pytest.mark.parametrize(("array", "task", "done"), [(12, 2, False), (12, 7, True), (99, 1, True)])
def test_a_planned_leave_of_who_is_no_member_is_done_and_one_that_takes_too_long_is_not(
    keeper: Inside, pair: Pair, array: int, task: int, done: bool
) -> None:
    assert keeper.client.part(array, [task]) is done


def test_one_that_got_sigterm_is_released_at_once(pair: Pair) -> None:
    pair[0].leave()
    with pytest.raises(ReleasedError):
        pair[0].wait_generation(120)
    wait_until(lambda: pair[1].change)
    assert pair[1].change == Change(planned=False, why="leave")


def test_done_is_said_even_as_the_connection_was_just_looked_after(
    keeper: Inside, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Membership._on_turn

    def look_as_it_ends(member: Membership, now_s: float) -> list[bytes]:
        said = look(member, now_s)
        if member is pair[0] and member._over is None:
            member.done()
        return said

    monkeypatch.setattr(Membership, "_on_turn", look_as_it_ends)
    wait_until(lambda: keeper.told()["members"] == 1)
    assert pair[1].change is None


def test_a_member_that_slurm_says_is_gone_is_told_so_and_joins_anew(
    keeper: Inside, pair: Pair
) -> None:
    keeper.client.lost(12, 1, "n1")
    wait_until(lambda: pair[0].change)
    with pytest.raises(DroppedError):
        pair[0].wait_generation(1)
    wait_until(lambda: pair[1].change)
    together(pair[1:], "change")
    pair[0].ready("change")
    wait_until(lambda: pair[1].change)
    assert pair[1].change == JOIN


def test_the_newest_progress_reaches_the_controller(keeper: Inside) -> None:
    member = keeper.member(1)
    for samples in range(1_000):
        member.progress(samples=samples, steps=samples, loss=float("nan"))
    notes = (numbered.note for _, numbered in keeper.client.watch("", 0) if numbered)
    told: dict[str, float] = {}
    while told.get("samples") != 999.0:  # one may have gone out on the way
        told = dict(next(notes).measures)
    assert told == {"samples": 999.0, "steps": 999.0}


def test_the_last_progress_is_told_before_the_end(keeper: Inside) -> None:
    member = keeper.member(1)
    wait_until(lambda: keeper.told()["members"] == 1)
    member.progress(samples=7)
    member.done()
    (note,) = keeper.notes(1)
    assert dict(note.measures) == {"samples": 7.0}


def test_a_new_generation_and_a_failure_reach_the_controller(keeper: Inside) -> None:
    keeper.client.own(12, 0, 1)
    member = keeper.member(1, launcher="srun python")
    together([member])
    member.ready("failed", "Traceback:\nZeroDivisionError\n")
    reformed, *others = keeper.notes(3)
    by = float(LAUNCHERS.index("srun python"))
    assert dict(reformed.measures) == {"generation": 1.0, "nodes": 1.0, "launcher": by}
    (failed,) = [note for note in others if note.kind is NoteKind.FAILED]
    assert (failed.array, failed.task, failed.node) == (12, 1, "n1")
    assert failed.text == "Traceback:\nZeroDivisionError\n"


def test_a_forked_child_does_not_keep_the_connection_open(keeper: Inside, pair: Pair) -> None:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0)
    try:
        pair[0].close()
        wait_until(lambda: pair[1].change)
        assert "silent" not in keeper.counts()
    finally:
        os.write(told, b".")
        os.waitpid(child, 0)


def test_an_identity_that_cannot_be_is_found_at_once() -> None:
    with pytest.raises(ProtocolError):
        Membership("h:1", Identity(12, 1, "n 1", Role.AGENT), b"secret")


def test_what_nobody_foresaw_ends_a_wait_and_says_why(
    keeper: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Notice) -> None:
        raise RuntimeError("can't start new thread")

    keeper.client.own(12, 0, 1)
    member = keeper.member(1, on_notice=refuse)
    member.ready("new")
    member.wait_generation(60)
    member.ready("change")
    with pytest.raises(MembershipError, match="can't start new thread"):
        member.wait_generation(60)
    assert "takes no part in its trainer any more" in caplog.text


def test_a_change_that_overtakes_its_generation_is_not_forgotten(keeper: Inside) -> None:
    heard: list[Notice] = []
    first = keeper.member(1, on_notice=heard.append)
    first.ready("new")
    wait_until(lambda: first.connected)
    second = keeper.member(2)
    second.ready("new")
    wait_until(lambda: heard)
    second.close()
    wait_until(lambda: first.change)
    assert first.wait_generation(60).rank == 0
    assert first.change == Change(planned=False, why="loss")


def test_without_a_keeper_members_wait_and_are_ended_all_the_same(keeper: Inside) -> None:
    member = keeper.member(1, at="127.0.0.1:1")
    with pytest.raises(TimeoutError):
        member.wait_generation(0.3)
    threading.Timer(0.2, member.done).start()
    with pytest.raises(MembershipError, match="closed"):
        member.wait_generation(30)


def test_members_that_lose_their_keeper_stand_with_the_next_as_before(keeper: Inside) -> None:
    keeper.client.own(12, 0, 3)
    with keeper_inside() as first:
        first.client.own(12, 0, 3)
        addresses = ",".join(("127.0.0.1:1", first.client.address, keeper.client.address))
        members = [keeper.member(task, at=addresses) for task in range(3)]
        together(members)
    (note,) = keeper.notes(1)
    assert note.kind is NoteKind.REFORMED, "all are back where they were"
    assert dict(note.measures)["nodes"] == 3
    assert all(member.change is None for member in members)
