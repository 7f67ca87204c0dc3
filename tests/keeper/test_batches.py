"""Which element runs the batch script, and which step the others start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.keeper.messages import Batch, Role, Turn
from bftrainer_slurm.keeper.protocol import NoteKind
from tests.keeper.simulated import LEADS, WAITS, World

STEP = Batch("leads", 0, "c3RlcA==")
JOINED = replace(STEP, doing="steps")
JOIN = Turn("join", 0, "c3RlcA==")
DONE = ((0, 0, "ab"),)
THROUGH = Batch("waits", done=DONE)


def say(world: World, task: int, said: Batch) -> dict[int, Turn]:
    """One says what it does; return what each is told last since the last call."""
    return world.say(task, said, Role.BATCH).turns()


def lose(world: World, task: int) -> dict[int, Turn]:
    return world.cut(task, role=Role.BATCH).turns()


def trains(world: World, task: int, step: int) -> dict[int, Turn]:
    """An agent of a step comes."""
    return world.start(task, ready=False, step=step).turns()


@pytest.fixture
def led() -> World:
    """Element 0 runs the script, 1 and 2 wait."""
    return World().batch(0, LEADS).batch(1).batch(2).quiet()


@pytest.fixture
def stepping(led: World) -> World:
    """All three are in the script's first step."""
    for task, said in enumerate((STEP, JOINED, JOINED)):
        say(led, task, said)
    return led


def test_the_first_runs_the_script_and_others_wait() -> None:
    assert World().batch(3).batch(1).turns() == {3: Turn("lead"), 1: Turn("wait")}


def test_the_controller_knows_whose_script_the_others_wait_for_and_until_when() -> None:
    def told() -> list[tuple[int, ...]]:
        """Which task leads, and whether it trains."""
        notes = world.noted(NoteKind.SCRIPT)
        return [tuple(int(value) for _, value in one.measures) for one in notes]

    world = World().batch(0).batch(1).batch(2)
    assert told() == [(0, 0)]
    say(world, 0, LEADS)
    assert told() == []
    say(world, 0, STEP)
    trains(world, 0, 0)
    say(world, 1, JOINED)
    assert told() == [(0, 1)]
    world.cut(0)
    say(world, 0, LEADS)
    say(world, 1, THROUGH)
    assert told() == [(0, 0)]
    world.lost(0, "n0")
    assert told() == [(1, 0)]


@pytest.mark.parametrize(("number", "told"), [(3, 3), (-2, -1)], ids=["", "without a number"])
def test_a_step_that_joins_is_known_to_the_scripts_node_which_hands_it_on(
    led: World, number: int, told: int
) -> None:
    assert trains(led, 0, number) == {0: Turn("trains", told)}
    assert say(led, 0, replace(STEP, step=3)) == {task: replace(JOIN, step=3) for task in (1, 2)}
    assert led.batch(3).turns() == {3: replace(JOIN, step=3)}


def test_a_script_that_trains_outside_of_steps_runs_on_each(led: World) -> None:
    assert trains(led, 0, step=-1) == {1: Turn("each"), 2: Turn("each")}
    say(led, 1, LEADS)
    assert led.batch(3).turns() == {3: Turn("each")}


def test_who_is_through_with_a_step_waits_for_the_next_one(stepping: World) -> None:
    assert say(stepping, 1, THROUGH) == {1: Turn("wait")}
    assert say(stepping, 0, Batch("leads", 1, "dHdv", DONE)) == {1: Turn("join", 1, "dHdv")}


def test_all_end_as_the_script_does(stepping: World) -> None:
    say(stepping, 1, THROUGH)
    assert say(stepping, 0, Batch("over")) == {1: Turn("over"), 2: Turn("over")}
    say(stepping, 2, THROUGH)
    assert stepping.batch(3).turns()[3] == Turn("over")
    assert stepping.batch(0).turns()[0] == Turn("lead"), "its user wants it once more"


def test_after_a_failure_it_begins_at_the_top(stepping: World) -> None:
    over = Turn("over", code=3)
    assert say(stepping, 0, Batch("over", code=3, done=DONE)) == {1: over, 2: over}
    for task in (0, 1, 2):
        lose(stepping, task)
    assert stepping.batch(0).turns()[0] == Turn("wait")
    assert stepping.lost(1, "n1").lost(2, "n2").turns()[0] == Turn("lead")


def test_when_the_leader_is_lost_others_train_on_and_then_run_the_script(stepping: World) -> None:
    lose(stepping, 0)
    assert stepping.wait(60).batch(0).turns()[0] == JOIN
    say(stepping, 0, JOINED)
    assert say(stepping, 1, THROUGH) == {1: Turn("wait")}, "others are not through"
    say(stepping, 2, THROUGH)
    assert say(stepping, 0, THROUGH)[0] == Turn("lead", done=DONE)


@pytest.mark.parametrize("task", [0, 2])
def test_elements_tell_a_new_keeper_of_their_step(task: int) -> None:
    world = World(hold_s=10).batch(1)
    assert world.turns() == {1: Turn("wait")}
    assert world.batch(task, JOINED if task else STEP).turns() == {1: JOIN}


def test_what_ended_well_anywhere_has_ended_well(stepping: World) -> None:
    failed = Batch("waits", done=((0, 1, "ab"),))
    for task, said in ((1, failed), (2, THROUGH), (1, failed)):
        say(stepping, task, said)
    assert Turn("lead", done=DONE) in stepping.lost(0, "n0").turns().values()


def test_what_has_failed_without_the_script_comes_again_with_it(stepping: World) -> None:
    orphaned = [stepping.run.batches.orphaned]
    lose(stepping, 0)  # it may come back
    orphaned.append(stepping.run.batches.orphaned)
    stepping.lost(0, "n0")
    assert (*orphaned, stepping.run.batches.orphaned) == (False, False, True)
    failed = Batch("waits", done=(*DONE, (1, 1, "cd")))
    assert say(stepping, 1, failed) == {1: Turn("wait")}
    assert say(stepping, 2, failed) == {1: Turn("again"), 2: Turn("again")}
    assert say(stepping, 2, THROUGH) == {2: Turn("lead", done=DONE)}
    say(stepping, 1, THROUGH)
    assert say(stepping, 2, Batch("leads", 1, "dHdv")) == {1: Turn("join", 1, "dHdv")}


def test_where_steps_ran_at_once_none_is_done_when_the_script_runs_again(stepping: World) -> None:
    for task, said in enumerate((replace(STEP, beside=True), THROUGH, THROUGH)):
        say(stepping, task, said)
    assert stepping.lost(0, "n0").turns() == {1: Turn("lead")}


def test_another_process_of_a_task_takes_its_place(led: World) -> None:
    first = led.at(1, Role.BATCH)
    assert led.batch(1, WAITS).turns() == {1: Turn("wait")}
    assert not first.connected and len(led.run.batches.elements) == 3
