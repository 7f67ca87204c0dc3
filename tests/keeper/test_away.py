"""Who cannot be heard may train on: as long as Slurm runs it, no second group begins beside it.

For how long others wait is in ``test_times``.
"""

from __future__ import annotations

import pytest

from bftrainer_slurm.keeper.messages import (
    Done,
    Engaged,
    Finishing,
    FromMember,
    Generation,
    Leave,
    Left,
    Role,
    Turn,
    Waits,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from tests.keeper.simulated import LEADS, WAITS, World, started
from tests.keeper.test_batches import JOINED, STEP


def test_when_slurm_has_ended_all_that_cannot_be_heard_who_waits_begins() -> None:
    world = World(1, engaged=Engaged(5, frozenset({1, 2}), leader=1)).start(3).batch(3)
    world.lost(1, "n1").wait(10)
    assert not world.told(3, Generation)
    world.lost(2, "n2")
    assert world.told(3, Generation)
    assert world.turns() == {3: Turn("lead")}


def test_who_waits_is_told_once_for_whom_and_what_comes_next() -> None:
    world = started(1).cut(1).start(3).wait(1).ready(3)
    assert [one.why for one in world.told(3, Waits)] == [
        "this node waits for element 12_1 on n1: it may still train, as the keeper does not hear "
        "it and Slurm has not said that it is gone. Unless it comes back within 30 s, the "
        "controller ends it"
    ]
    script = World().batch(0, LEADS).batch(1).cut(0, role=Role.BATCH)
    assert [type(one) for one in script.wait(1).told(1, role=Role.BATCH)] == [Turn, Waits]


def test_all_that_come_back_train_on_and_who_has_waited_joins_them() -> None:
    world = started(2).cut(1, 2).start(3).wait(31).quiet().come_back(1).come_back(2)
    assert world.noted(NoteKind.BACK) == [Note(NoteKind.BACK, 12, task) for task in (1, 2)]
    assert [one.why for one in world.told(1)] == ["join"]


def test_who_was_without_the_others_stands_still_before_it_counts_again() -> None:
    """Another process may come: the first one's workers may still train."""
    world = started(1).cut(1).start(3).start(1, ready=False)
    assert not world.told(3, Generation)
    world.ready(1, cause="new")
    assert world.told(3, Generation) or world.told(1, Generation)


@pytest.mark.parametrize("word", [Leave(), Done(), Left(), Finishing(), None])
def test_nobody_waits_for_one_that_ends_or_stands_still(word: FromMember | None) -> None:
    world = started(2).ready(1) if word is None else started(1).say(1, word)
    assert not world.cut(1).run.away


# The script.


def led() -> World:
    """Task 0 runs the script, whose step trains on 0 and 1."""
    return World(2).batch(0, STEP).batch(1, JOINED).start(0, 1, step=0).settle(1).quiet()


def test_an_agent_that_ends_without_a_word_is_gone_when_its_script_says_that_no_step_runs() -> None:
    world = led().cut(1)
    assert world.run.away
    assert not world.say(1, WAITS, Role.BATCH).run.away
    assert world.cut(0).say(0, STEP, Role.BATCH).run.away
    assert not world.say(0, LEADS, Role.BATCH).run.away


def test_an_agent_outside_of_steps_may_train_on_while_its_script_runs() -> None:
    assert World(1).batch(0, LEADS).start(0).cut(0).say(0, LEADS, Role.BATCH).run.away
