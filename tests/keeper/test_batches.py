"""Which element runs the batch script, and which step the others start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.keeper.away import Away
from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.messages import Batch, HangUp, Identity, Output, Role, Send, Turn
from bftrainer_slurm.keeper.protocol import Note, NoteKind

LEADS = Batch("leads")
STEP = Batch("leads", 0, "c3RlcA==")
JOINED = replace(STEP, doing="steps")
JOIN = Turn("join", 0, "c3RlcA==")
DONE = ((0, 0, "ab"),)


class World:
    """The elements of one trainer, as the keeper sees them. Each one's key is its task."""

    def __init__(self, hold_s: float = 0.0) -> None:
        self.out: list[Output] = []
        self.now_s = 100.0
        self.away = Away(self.out, self.now_s + hold_s if hold_s else 0.0, array=7)
        self.members: dict[int, Identity] = {}
        self.batches = Batches(self.out, self.away, self.members)

    def join(self, task: int, said: Batch | None = None) -> None:
        self.batches.join(task, Identity(7, task, f"n{task}", Role.BATCH))
        self.say(task, said or Batch("waits"))

    def say(self, task: int, said: Batch) -> None:
        self.batches.hear(task, said, self.now_s)

    def lose(self, task: int) -> None:
        self.batches.lose(task, self.now_s)

    def gone(self, task: int) -> None:
        """Slurm says so."""
        self.away.gone(task, f"n{task}")
        self.batches.lose_task(task, f"n{task}", self.now_s)

    def trains(self, task: int, step: int = 0) -> None:
        self.members[1000 + task] = Identity(7, task, f"n{task}", Role.AGENT, step=step)
        self.batches.tick(self.now_s)

    def lose_agent(self, task: int) -> None:
        del self.members[1000 + task]
        self.batches.tick(self.now_s)

    def waits(self, seconds: float) -> None:
        self.now_s += seconds
        self.away.tick(self.now_s)
        self.batches.tick(self.now_s)

    def told(self) -> dict[int, Any]:
        """What each was told last since the last call."""
        sent = {one.key: one.message for one in self.out if isinstance(one, Send)}
        self.out.clear()
        return {key: one for key, one in sent.items() if isinstance(one, Turn)}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def led(world: World) -> World:
    """Element 0 runs the script, 1 and 2 wait."""
    for task in range(3):
        world.join(task)
    world.say(0, LEADS)
    world.told()
    return world


@pytest.fixture
def stepping(led: World) -> World:
    """All three are in the script's first step."""
    led.say(0, STEP)
    led.say(1, JOINED)
    led.say(2, JOINED)
    led.told()
    return led


def test_the_first_runs_the_script_and_others_wait(world: World) -> None:
    world.join(3)
    world.join(1)
    assert world.told() == {3: Turn("lead"), 1: Turn("wait")}


def scripts(world: World) -> list[tuple[int, ...]]:
    """Which task leads, and whether it trains, as the controller was told since the last call."""
    notes = [one for one in world.out if isinstance(one, Note)]
    world.out.clear()
    assert {(one.kind, one.array) for one in notes} <= {(NoteKind.SCRIPT, 7)}
    return [tuple(int(value) for _, value in one.measures) for one in notes]


def test_the_controller_knows_whose_script_the_others_wait_for_and_until_when(
    world: World,
) -> None:
    for task in range(3):
        world.join(task)
    assert scripts(world) == [(0, 0)]
    world.say(0, LEADS)
    assert scripts(world) == []
    world.say(0, STEP)
    world.trains(0)
    world.say(1, JOINED)
    assert scripts(world) == [(0, 1)]
    world.lose_agent(0)
    world.say(0, Batch("leads"))
    world.say(1, Batch("waits", done=DONE))
    assert scripts(world) == [(0, 0)]
    world.gone(0)
    assert scripts(world) == [(1, 0)]


def test_the_step_that_joins_is_handed_on(led: World) -> None:
    led.trains(0, step=3)
    assert led.told() == {0: Turn("trains", 3)}
    led.say(0, replace(STEP, step=3))
    join = replace(JOIN, step=3)
    assert led.told() == {1: join, 2: join}
    led.join(3)
    assert led.told() == {3: join}


def test_a_script_that_trains_outside_of_steps_runs_on_each(led: World) -> None:
    led.trains(0, step=-1)
    assert led.told() == {1: Turn("each"), 2: Turn("each")}
    led.say(1, LEADS)
    led.join(3)
    assert led.told() == {3: Turn("each")}


def test_of_a_step_without_a_number_the_scripts_node_knows_which_one_it_is(led: World) -> None:
    led.trains(0, step=-2)
    assert led.told() == {0: Turn("trains")}
    led.say(0, STEP)
    assert led.told() == {1: JOIN, 2: JOIN}


def test_who_is_through_with_a_step_waits_for_the_next_one(stepping: World) -> None:
    stepping.say(1, Batch("waits", done=DONE))
    assert stepping.told() == {1: Turn("wait")}
    second = Batch("leads", 1, "dHdv", DONE)
    stepping.say(0, second)
    assert stepping.told() == {1: Turn("join", 1, "dHdv")}


def test_all_end_as_the_script_does(stepping: World) -> None:
    stepping.say(1, Batch("waits", done=DONE))
    stepping.told()
    stepping.say(0, Batch("over"))
    assert stepping.told() == {1: Turn("over"), 2: Turn("over")}
    stepping.say(2, Batch("waits", done=DONE))
    stepping.join(3)
    assert stepping.told() == {2: Turn("over"), 3: Turn("over")}
    stepping.join(0)  # its user wants it once more
    assert stepping.told()[0] == Turn("lead")


def test_a_step_does_not_outlive_a_script_that_has_ended_well(stepping: World) -> None:
    """As with ``timeout 3h srun ...`` in it, where srun and so the step would end on all nodes."""
    stepping.batches.trains_on = lambda: True
    stepping.say(0, Batch("over"))
    assert stepping.told() == {1: Turn("stop"), 2: Turn("stop")}
    stepping.say(1, Batch("waits"))
    assert stepping.told() == {1: Turn("over")}


def test_after_a_failure_it_begins_at_the_top(stepping: World) -> None:
    stepping.say(0, Batch("over", code=3, done=DONE))
    stepping.lose(0)
    assert stepping.told() == {1: Turn("over", code=3), 2: Turn("over", code=3)}
    stepping.lose(1)
    stepping.lose(2)
    stepping.join(0)
    assert stepping.told()[0] == Turn("wait")
    for task in (1, 2):
        stepping.gone(task)
    assert stepping.told()[0] == Turn("lead")


def test_when_the_leader_is_lost_others_train_on_and_then_the_script_runs_again(
    stepping: World,
) -> None:
    stepping.lose(0)
    stepping.waits(60.0)
    stepping.join(0)
    assert stepping.told() == {0: JOIN}
    stepping.say(0, JOINED)
    stepping.say(1, Batch("waits", done=DONE))
    assert stepping.told() == {1: Turn("wait")}  # others are not through
    stepping.say(2, Batch("waits", done=DONE))
    stepping.say(0, Batch("waits", done=DONE))
    told = stepping.told()
    assert [task for task, turn in told.items() if turn == Turn("lead", done=DONE)] == [0]


def test_a_leader_that_is_cut_off_comes_back(led: World) -> None:
    led.lose(0)
    led.waits(600.0)
    assert led.told() == {}
    led.join(0, LEADS)
    led.waits(600.0)
    assert led.told() == {}


def test_a_leader_that_is_gone_is_followed(led: World) -> None:
    led.lose(0)
    led.gone(0)
    assert led.told() == {1: Turn("lead")}


def test_a_new_keeper_waits_for_who_may_come_back() -> None:
    world = World(hold_s=10.0)
    world.join(1)
    assert world.told() == {1: Turn("wait")}
    assert world.away.due_s() == world.now_s + 10.0
    world.join(0, STEP)
    assert world.told() == {1: JOIN}
    alone = World(hold_s=10.0)
    alone.join(1)
    alone.waits(10.0)
    assert alone.told() == {1: Turn("lead")}


def test_joined_elements_tell_a_new_keeper_of_their_step() -> None:
    world = World(hold_s=10.0)
    world.join(2, JOINED)
    world.join(1)
    assert world.told() == {1: JOIN}


def test_what_ended_well_anywhere_has_ended_well(stepping: World) -> None:
    stepping.say(1, Batch("waits", done=((0, 1, "ab"),)))
    stepping.say(2, Batch("waits", done=((0, 0, "ab"),)))
    stepping.say(1, Batch("waits", done=((0, 1, "ab"),)))
    stepping.gone(0)
    assert Turn("lead", done=((0, 0, "ab"),)) in stepping.told().values()


def test_what_has_failed_without_the_script_comes_again_when_the_script_runs_again(
    stepping: World,
) -> None:
    assert not stepping.batches.orphaned
    stepping.lose(0)
    assert not stepping.batches.orphaned  # it may come back
    stepping.gone(0)
    assert stepping.batches.orphaned
    failed = (*DONE, (1, 1, "cd"))
    stepping.say(1, Batch("waits", done=failed))
    assert stepping.told() == {1: Turn("wait")}
    stepping.say(2, Batch("waits", done=failed))
    assert stepping.told() == {1: Turn("again"), 2: Turn("again")}
    stepping.say(2, Batch("waits", done=DONE))
    assert stepping.told() == {2: Turn("lead", done=DONE)}
    stepping.say(1, Batch("waits", done=DONE))
    stepping.say(2, Batch("leads", 1, "dHdv"))
    assert stepping.told() == {1: Turn("join", 1, "dHdv")}


def test_where_steps_ran_at_the_same_time_none_is_done_when_the_script_runs_again(
    stepping: World,
) -> None:
    stepping.say(0, replace(STEP, beside=True))
    for task in (1, 2):
        stepping.say(task, Batch("waits", done=DONE))
    stepping.told()
    stepping.gone(0)
    assert stepping.told() == {1: Turn("lead")}


@pytest.mark.parametrize("hold_s", [0.0, 10.0])
def test_nothing_stays_due(hold_s: float) -> None:
    world = World(hold_s)
    world.join(0)
    for _ in range(3):
        assert world.away.due_s() > world.now_s
        world.waits(hold_s or 1.0)


def test_another_process_of_a_task_takes_its_place(led: World) -> None:
    led.batches.join(99, Identity(7, 1, "n1", Role.BATCH))
    assert led.out == [HangUp(1)]
