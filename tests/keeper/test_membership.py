"""A member's client against a keeper over real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper import registry
from bftrainer_slurm.keeper.credentials import read_secret
from bftrainer_slurm.keeper.home import own_secret
from bftrainer_slurm.keeper.membership import (
    DroppedError,
    Membership,
    MembershipError,
    Notice,
    ReleasedError,
)
from bftrainer_slurm.keeper.messages import Change, Generation, Identity, Role
from bftrainer_slurm.keeper.protocol import LAUNCHERS, NoteKind, ProtocolError
from bftrainer_slurm.sizes import Sizes
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside, together


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside() as running:
        running.client.own(12, 0, 2)
        yield running


def test_members_get_one_rank_each_and_the_store_of_rank_0(keeper: Inside) -> None:
    first, second = sorted(together([keeper.member(1), keeper.member(2)]), key=lambda one: one.rank)
    assert (first.rank, second.rank) == (0, 1)
    assert (first.store, second.store) == (None, "127.0.0.1:4321")
    assert first.members == second.members


def test_a_store_that_was_offered_between_two_connections_is_offered_again(keeper: Inside) -> None:
    """Else all would wait for it for a minute."""
    found: list[Generation] = []

    def get_in(member: Membership) -> None:
        generation = member.wait_generation(120)
        if generation.store is None:
            member._on_loss(None)
            member.offer_store(generation.number, "127.0.0.1:4321")
            member._on_welcome()
        found.append(generation)

    members = [keeper.member(1), keeper.member(2)]
    threads = [threading.Thread(target=get_in, args=(member,)) for member in members]
    for member, thread in zip(members, threads, strict=True):
        member.ready("new")
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.store for one in found} == {None, "127.0.0.1:4321"}
    assert members[0].change is members[1].change is None


def test_when_a_node_joins_all_stop_and_go_on_with_it(keeper: Inside) -> None:
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    newcomer = keeper.member(3)
    newcomer.ready("new")
    wait_until(lambda: members[0].change and members[1].change)
    assert members[0].change == members[1].change == Change(planned=True, why="join")
    generations = together(members, "change")
    assert {one.world for one in generations} == {3}
    assert newcomer.wait_generation(120).rank == 2


def test_a_planned_leave_is_answered_when_the_leaver_is_out(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PART_S", 100.0)
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(keeper.client.part(12, [2])))
    asking.start()
    wait_until(lambda: members[0].change and members[1].change)
    members[1].ready("change")
    together(members[:1], "change")
    with pytest.raises(ReleasedError):
        members[1].wait_generation(120)
    asking.join()
    assert answers == [True]


def test_a_planned_leave_that_takes_too_long_is_answered_too(keeper: Inside) -> None:
    together([keeper.member(1), keeper.member(2)])
    assert keeper.client.part(12, [2]) is False


def test_one_that_got_sigterm_is_released_at_once(keeper: Inside) -> None:
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    members[0].leave()
    with pytest.raises(ReleasedError):
        members[0].wait_generation(120)
    wait_until(lambda: members[1].change)
    assert members[1].change == Change(planned=False, why="leave")


def test_the_leave_of_who_is_no_member_is_done_at_once(keeper: Inside) -> None:
    assert keeper.client.part(12, [7, 8]) is True
    assert keeper.client.part(99, [1]) is True


def test_done_is_said_even_as_the_connection_was_just_looked_after(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    look = Membership._on_turn
    looked = threading.Event()

    def look_and_pause(member: Membership, now_s: float) -> list[bytes]:
        said = look(member, now_s)
        if member is members[0] and not looked.is_set():
            looked.set()
            wait_until(lambda: member._over)
        return said

    monkeypatch.setattr(Membership, "_on_turn", look_and_pause)
    assert looked.wait(120)
    members[0].done()
    wait_until(lambda: keeper_members(keeper) == 1)
    assert members[1].change is None


def test_a_member_that_slurm_says_is_gone_is_told_so_and_may_join_anew(keeper: Inside) -> None:
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    keeper.client.lost(12, 1, "n1")
    wait_until(lambda: members[0].change)
    with pytest.raises(DroppedError):
        members[0].wait_generation(1)
    wait_until(lambda: members[1].change)
    together(members[1:], "change")
    members[0].ready("change")
    wait_until(lambda: members[1].change)
    assert members[1].change == Change(planned=True, why="join")


def test_events_are_told_as_they_come(keeper: Inside) -> None:
    events: list[Notice] = []
    members = [keeper.member(1, on_notice=events.append), keeper.member(2)]
    together(members)
    members[1].close()
    wait_until(lambda: len(events) == 2)
    assert [type(event) for event in events] == [Generation, Change]


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
    wait_until(lambda: keeper_members(keeper) == 1)
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
    told = {"generation": 1.0, "nodes": 1.0, "launcher": by}
    assert dict(reformed.measures) == told
    (failed,) = [note for note in others if note.kind is NoteKind.FAILED]
    assert (failed.array, failed.task, failed.node) == (12, 1, "n1")
    assert failed.text == "Traceback:\nZeroDivisionError\n"


@pytest.mark.parametrize("sizes", [Sizes((2, 4)), Sizes(without=(3,)), Sizes(step=2)])
def test_a_group_has_a_size_that_the_controller_allows(keeper: Inside, sizes: Sizes) -> None:
    keeper.client.own(12, 0, 4, sizes)
    members = [keeper.member(task) for task in (1, 2, 3)]
    for member in members:
        member.ready("new")
    keeper.client.own(12, 0, 2, sizes)  # there are no more
    (reformed,) = keeper.notes(1)
    assert dict(reformed.measures)["nodes"] == 2.0


def test_a_forked_child_does_not_keep_the_connection_open(keeper: Inside) -> None:
    members = [keeper.member(1), keeper.member(2)]
    together(members)
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0)
    try:
        members[0].close()
        wait_until(lambda: members[1].change)
        assert "silent" not in keeper.counts()
    finally:
        os.write(told, b".")
        os.waitpid(child, 0)


def test_an_identity_that_cannot_be_is_found_at_once() -> None:
    with pytest.raises(ProtocolError):
        Membership("h:1", Identity(12, 1, "n 1", Role.AGENT), b"secret")


def test_closing_ends_a_wait(keeper: Inside) -> None:
    member = keeper.member(1)
    threading.Timer(0.2, member.close).start()
    with pytest.raises(MembershipError):
        member.wait_generation(30)


def fail(notice: Notice) -> None:
    raise RuntimeError("can't start new thread")


def test_what_nobody_foresaw_ends_a_wait_and_says_why(
    keeper: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    member = keeper.member(1, on_notice=fail)
    member.ready("new")
    member.wait_generation(60)
    member.ready("change")
    with pytest.raises(MembershipError, match="can't start new thread"):
        member.wait_generation(60)
    assert "takes no part in its trainer any more" in caplog.text


def test_a_member_whose_thread_cannot_start_ends(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without, pytest.raises(RuntimeError, match="new thread"):
        without.setattr(threading.Thread, "start", refuse)
        keeper.member(1)


def test_a_change_that_comes_before_its_generation_was_taken_is_not_forgotten(
    keeper: Inside,
) -> None:
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


def test_without_a_keeper_members_wait_and_are_quick_when_it_comes() -> None:
    with keeper_inside() as before:
        port = before.port
    member = Membership(f"127.0.0.1:{port}", Identity(12, 1, "n1", Role.AGENT), b"secret")
    member.start()
    with pytest.raises(TimeoutError):
        member.wait_generation(0.3)
    member.done()


def test_the_secret_is_for_its_owner_only(tmp_path: Path) -> None:
    path = own_secret(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    secret = path.read_text()
    assert own_secret(tmp_path).read_text() == secret
    assert [entry.name for entry in tmp_path.iterdir()] == ["member.secret"]


def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    path = own_secret(tmp_path)
    path.chmod(0o640)
    with pytest.raises(Exception, match="chmod 600"):
        read_secret(path)


def keeper_members(keeper: Inside) -> int:
    keeper.client.publish({})
    _, status = keeper.client.status()
    assert status is not None
    return int(status["keeper"]["members"])
