"""What becomes of members' connections. What the keeper refuses is in ``test_hostile``."""

from __future__ import annotations

import os
from contextlib import suppress
from unittest.mock import Mock

import pytest

from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.registry import MEMBER_SILENCE_S, SWEEP_S
from bftrainer_slurm.keeper.session import MAX_MESSAGES, MAX_UNSENT
from bftrainer_slurm.sizes import Sizes
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside
from tests.keeper.wire import Wire, pair


def test_a_flood_of_messages_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.SWEEP_S", 1_000.0)  # all between two
    with keeper_inside() as keeper, Wire(keeper) as wire:
        wire.join()
        with suppress(ConnectionError):
            wire.send(b'{"batch":{"doing":"waits"}}\n' * (MAX_MESSAGES + 1))
        assert wire.read() is None
        assert keeper.counts() == {"flood": 1}


def test_who_does_not_read_is_dropped(keeper: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    with Wire(keeper) as wire:
        wire.join()
        (session,) = keeper.registry._sessions.values()
        unsent = {"get_write_buffer_size.return_value": MAX_UNSENT + 1}
        monkeypatch.setattr(session, "_transport", Mock(wraps=session._transport, **unsent))
        wire.say(ping={"number": 1})
        assert wire.read_all() == [{"pong": {"number": 1}}]
    assert (keeper.counts(), keeper.told()["members"]) == ({"slow": 1}, 0)


def test_a_silent_member_is_lost_to_the_others(keeper: Inside) -> None:
    with pair(keeper) as (_, other):
        keeper.sweep(MEMBER_SILENCE_S + 0.1, 0.0)
        assert other.read() == {"change": {"planned": False, "why": "loss"}}
    assert keeper.counts() == {"silent": 1}


def test_members_that_fall_silent_together_hear_of_no_loss(keeper: Inside) -> None:
    """It is the keeper's host that is cut off: what it says then would come with the network."""
    with pair(keeper) as (first, later):
        keeper.sweep(MEMBER_SILENCE_S + 0.1, MEMBER_SILENCE_S - 1.9 * SWEEP_S)
        assert later.read_all() == first.read_all() == []
    assert keeper.counts() == {"silent": 2}


def test_a_silent_stranger_who_names_a_trainer_is_no_member_of_it(keeper: Inside) -> None:
    with Wire(keeper, task=1) as member, Wire(keeper, task=2):
        member.join()
        keeper.sweep(MEMBER_SILENCE_S - 1.9 * SWEEP_S, MEMBER_SILENCE_S + 0.1)
        assert member.is_answered()


def test_all_is_heard_that_was_said_before_the_end(keeper: Inside) -> None:
    """Else who has ended well could be taken for lost, and the others' last collectives be cut."""
    with pair(keeper) as (first, other):
        with first:
            words = b'{"ping":{"number":1}}\n{"measured":{"measures":[["steps",5]]}}\n'
            first.send(words + b'{"done":{}}\n')
        wait_until(lambda: keeper.told()["members"] == 1)
        assert other.is_answered()
    assert keeper.counts() == {}


def test_who_has_ended_well_is_hung_up_on(keeper: Inside) -> None:
    with Wire(keeper) as wire:
        wire.join()
        wire.say(done={})
        assert wire.read_all() == []
    assert keeper.counts() == {}


def test_progress_reaches_the_controller_but_not_faster_than_it_should(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.PROGRESS_EVERY_S", 600.0)
    with Wire(keeper) as wire:
        wire.join()
        for samples in range(100):
            wire.say(measured={"measures": [["samples", samples], ["pause_s", 0.125]]})
        assert wire.is_answered()
    keeper.client.tell(Note(NoteKind.SUBMITTED))
    first, second = keeper.notes(2)
    assert (first.array, dict(first.measures)) == (12, {"samples": 0.0, "pause_s": 0.125})
    assert second == Note(NoteKind.SUBMITTED)


def test_the_end_of_a_run_ends_its_members_connections(keeper: Inside) -> None:
    with Wire(keeper) as wire:
        wire.join()
        keeper.client.say(12, "ended")
        assert wire.read_all() == [{"dropped": {"why": "the run has ended"}}]
    assert keeper.told()["runs"] == 0


def test_while_much_waits_for_a_user_their_group_is_told_nothing_more(
    keeper: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.keeper.registry.MUCH_KEPT", 0)
    keeper.client.own(12, 0, 1)
    with Wire(keeper, task=1) as first, Wire(keeper, task=2) as other:
        for wire in (first, other):
            wire.join()
        line = b'{"ping":{"number":1}}\n'
        other.send(line[:-1])  # until it is whole, it waits
        (share,) = keeper.registry._shares.values()
        wait_until(lambda: share.kept > 0)
        first.say(ready={"cause": "new", "error": ""})
        assert first.is_answered()
        other.send(line[-1:])
        assert "generation" in (first.read() or {})


def test_who_took_part_before_this_keeper_is_waited_for_and_later_it_knows_better(
    keeper: Inside,
) -> None:
    for took_part in ({1}, {1, 2}):
        engaged = Engaged(5, frozenset(took_part), leader=1)
        keeper.client.own(12, os.getuid(), 2, Sizes((1,)), engaged)
    waits, other = keeper.member(200), keeper.member(201)
    waits.ready("new")
    wait_until(lambda: keeper.told()["members"] == 2)
    other.ready("new")
    with pytest.raises(TimeoutError):
        waits.wait_generation(2)
    keeper.client.lost(12, 1, "n1")
    generation = waits.wait_generation(120)
    assert (generation.number, generation.world) == (6, 1)
