"""Who cannot be heard may train on: as long as Slurm runs it, no second group begins beside it."""

from __future__ import annotations

import pytest

from bftrainer_slurm.keeper.away import CUT_S, STILL_S
from bftrainer_slurm.keeper.messages import (
    Batch,
    Change,
    Done,
    Dropped,
    Engaged,
    Finishing,
    Generation,
    Held,
    Identity,
    Leave,
    Left,
    Ready,
    Role,
    Send,
    StoreAt,
    Turn,
    Waits,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import Rendezvous
from bftrainer_slurm.sizes import ANY

STEP = Batch("leads", 0, "c3RlcA==")
JOINED = Batch("steps", 0, "c3RlcA==")


class Site:
    """A run, and what comes out of it; an agent's key is its task, a batch task's 100 more."""

    def __init__(self, want: int = 0, engaged: Engaged | None = None) -> None:
        self.now_s = 1_000.0
        self.run = Rendezvous(want)
        self.sent: list[tuple[int, object]] = []
        self.notes: list[Note] = []
        if engaged is not None:
            self.run.own(want, ANY, engaged, self.now_s)

    def agent(
        self, task: int, held: Held | None = None, step: int = -1, ready: bool = True
    ) -> None:
        who = Identity(7, task, f"n{task}", Role.AGENT, step=step)
        self.run.join(task, who, held, self.now_s)
        if ready and held is None:
            self.run.hear(task, Ready(), self.now_s)
        self.take()

    def batch(self, task: int, said: Batch) -> None:
        self.run.join(100 + task, Identity(7, task, f"n{task}", Role.BATCH), None, self.now_s)
        self.says(100 + task, said)

    def says(self, key: int, message: object) -> None:
        self.run.hear(key, message, self.now_s)  # type: ignore[arg-type]
        self.take()

    def cut(self, *keys: int) -> None:
        for key in keys:
            self.run.lose(key, self.now_s)
        self.take()

    def gone(self, *tasks: int) -> None:
        for task in tasks:
            self.run.lose_task(task, f"n{task}", self.now_s)
        self.take()

    def waits(self, seconds: float) -> None:
        """Time passes, as the run wants to be called."""
        until_s = self.now_s + seconds
        while (due_s := self.run.due_s()) <= until_s:
            assert due_s > self.now_s, "it is called for nothing"
            self.now_s = due_s
            self.run.tick(self.now_s)
            self.take()
        self.now_s = until_s
        self.take()

    def take(self) -> None:
        for one in self.run.outputs():
            if isinstance(one, Send):
                self.sent.append((one.key, one.message))
            elif isinstance(one, Note):
                self.notes.append(one)

    def told(self, key: int, *kinds: type) -> list[object]:
        """What one was told since the last call, of these kinds."""
        found = [one for to, one in self.sent if to == key and isinstance(one, kinds)]
        self.sent = [(to, one) for to, one in self.sent if to != key]
        return found

    def cuts(self) -> list[tuple[NoteKind, int]]:
        """Of whom the controller was told since the last call, and what."""
        kinds = (NoteKind.CUT, NoteKind.BACK)
        found = [(one.kind, one.task) for one in self.notes if one.kind in kinds]
        self.notes.clear()
        return found


def trained(*tasks: int) -> Site:
    """These tasks train together."""
    site = Site(len(tasks))
    for task in tasks:
        site.agent(task)
    site.says(tasks[0], StoreAt("n:1", 1))
    for task in tasks:
        assert site.told(task, Generation)
    return site


# The group.


def test_no_group_begins_while_all_of_another_one_cannot_be_heard() -> None:
    site = trained(1, 2)
    site.cut(1, 2)
    site.agent(3)
    site.waits(10_000.0)
    assert not site.told(3, Generation)
    site.gone(1)
    assert not site.told(3, Generation)
    site.gone(2)
    assert site.told(3, Generation)


def test_nor_if_slurm_says_that_they_have_left_other_nodes() -> None:
    site = trained(1)
    site.cut(1)
    site.agent(3)
    site.run.lose_task(1, "n9", site.now_s)
    site.waits(10_000.0)
    assert not site.told(3, Generation)


def test_who_waits_is_told_once_for_whom_and_what_comes_next() -> None:
    site = trained(1)
    site.cut(1)
    site.agent(3)
    site.waits(1.0)
    site.says(3, Ready("change"))
    (waits,) = site.told(3, Waits)
    assert isinstance(waits, Waits)
    assert waits.why == (
        "this node waits for element 7_1 on n1: it may still train, as the keeper does not hear it "
        "and Slurm has not said that it is gone. Unless it comes back within 30 s, the controller "
        "ends it"
    )


def test_the_controller_is_told_of_those_for_whom_somebody_has_waited_long_enough() -> None:
    site = trained(1, 2)
    site.cut(1, 2)
    site.agent(3)
    site.waits(CUT_S - 1.0)
    assert site.cuts() == []
    site.waits(2.0)
    assert site.cuts() == [(NoteKind.CUT, 1), (NoteKind.CUT, 2)]


def test_a_keeper_that_hears_nobody_ends_nobody_while_nobody_waits() -> None:
    site = trained(1, 2)
    site.cut(1, 2)
    site.waits(10_000.0)
    assert site.cuts() == []


def test_all_that_come_back_train_on_and_who_has_waited_joins_them() -> None:
    site = trained(1, 2)
    site.cut(1, 2)
    site.agent(3)
    site.waits(CUT_S + 1.0)
    site.cuts()
    site.agent(1, Held(1, 0, 2))
    site.agent(2, Held(1, 1, 2))
    assert site.cuts() == [(NoteKind.BACK, 1), (NoteKind.BACK, 2)]
    assert site.told(1, Change) == [Change(True, "join")]


def test_some_that_are_still_heard_go_on_and_the_controller_ends_the_others() -> None:
    site = trained(1, 2, 3)
    site.cut(3)
    for task in (1, 2):
        site.says(task, Ready("change"))
    assert site.told(1, Generation)
    site.waits(CUT_S + 1.0)
    assert site.cuts() == [(NoteKind.CUT, 3)]


def test_who_was_without_the_others_stands_still_before_it_counts_again() -> None:
    site = trained(1)
    site.cut(1)
    site.agent(3)
    site.agent(1, ready=False)  # another process: the first one's workers may still train
    assert not site.told(3, Generation)
    site.waits(CUT_S + 1.0)
    assert site.cuts() == []
    site.waits(STILL_S)
    assert site.cuts() == [(NoteKind.CUT, 1)]
    site.says(1, Ready())
    assert site.told(3, Generation) or site.told(1, Generation)


def test_nobody_waits_for_one_that_stood_still() -> None:
    site = trained(1, 2)
    site.says(1, Ready("change"))
    site.cut(1)
    assert not site.run.away


@pytest.mark.parametrize("word", [Leave(), Done(), Left(), Finishing()])
def test_nobody_waits_for_one_that_has_said_that_it_ends(word: object) -> None:
    site = trained(1)
    site.says(1, word)
    site.cut(1)
    assert not site.run.away


# The script.


def led() -> Site:
    """Task 0 runs the script, whose step trains on 0 and 1; 2 has come after that."""
    site = Site(2)
    site.batch(0, STEP)
    site.batch(1, JOINED)
    for task in (0, 1):
        site.agent(task, step=0)
    site.says(0, StoreAt("n:1", 1))
    return site


def test_nobody_runs_the_script_while_the_one_that_does_cannot_be_heard() -> None:
    site = Site()
    site.batch(0, Batch("leads"))
    site.batch(1, Batch("waits"))
    site.cut(100)
    site.waits(10_000.0)
    assert site.told(101, Turn) == [Turn("wait")]
    site.gone(0)
    assert site.told(101, Turn) == [Turn("lead")]


def test_whose_script_is_waited_for_is_told_and_ended() -> None:
    site = Site()
    site.batch(0, Batch("leads"))
    site.batch(1, Batch("waits"))
    site.cut(100)
    site.waits(CUT_S + 1.0)
    assert [type(one) for one in site.told(101, Turn, Waits)] == [Turn, Waits]
    assert site.cuts() == [(NoteKind.CUT, 0)]
    site.batch(0, Batch("leads"))
    assert site.cuts() == [(NoteKind.BACK, 0)]
    site.waits(10_000.0)
    assert site.told(101, Turn) == []


def test_steps_that_go_on_take_newcomers_in_while_the_scripts_node_is_away() -> None:
    site = led()
    site.cut(100, 0)
    site.batch(2, Batch("waits"))
    assert site.told(102, Turn) == [Turn("join", 0, "c3RlcA==")]


def test_an_agent_that_ends_without_a_word_is_gone_when_its_script_says_that_no_step_runs() -> None:
    site = led()
    site.cut(1)
    assert site.run.away
    site.says(101, Batch("waits"))
    assert not site.run.away
    site.cut(0)
    site.says(100, STEP)
    assert site.run.away
    site.says(100, Batch("leads"))
    assert not site.run.away


def test_an_agent_outside_of_steps_may_train_on_while_its_script_runs() -> None:
    site = Site(1)
    site.batch(0, Batch("leads"))
    site.agent(0)
    site.cut(0)
    site.says(100, Batch("leads"))
    assert site.run.away


# Another keeper.


def test_a_new_keeper_waits_for_those_of_whom_the_controller_knows() -> None:
    site = Site(1, Engaged(5, frozenset({1, 2}), leader=1))
    site.agent(3)
    site.batch(3, Batch("waits"))
    site.waits(10_000.0)
    assert not site.told(3, Generation)
    assert site.told(103, Turn) == [Turn("wait")]
    site.gone(1, 2)
    assert site.told(3, Generation)
    assert site.told(103, Turn) == [Turn("lead")]


def test_those_who_come_back_to_a_new_keeper_train_on() -> None:
    site = Site(2, Engaged(5, frozenset({1, 2})))
    site.agent(1, Held(5, 0, 2))
    site.agent(2, Held(5, 1, 2))
    site.waits(10_000.0)
    assert site.sent == []
    assert not site.run.away


def test_who_comes_back_first_of_an_older_group_does_not_go_on_without_the_newer_one() -> None:
    site = Site(2, Engaged(9, frozenset({1, 2})))
    site.agent(3, Held(5, 0, 1))
    assert [type(one) for one in site.told(3, Change, Dropped, Generation)] == [Dropped]
    site.says(3, Ready("change"))
    site.waits(10_000.0)
    assert not site.told(3, Generation)


def test_a_trainer_that_is_new_to_the_controller_begins_at_once() -> None:
    site = Site(1, Engaged())
    site.agent(1)
    assert site.told(1, Generation)
