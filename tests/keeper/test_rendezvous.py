"""How members get into generations, and what ends them: no sockets, virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.keeper import rendezvous
from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Batch,
    Change,
    Done,
    Dropped,
    Finished,
    Finishing,
    Generation,
    HangUp,
    Held,
    Identity,
    Leave,
    Left,
    Measured,
    Ready,
    Released,
    Role,
    Send,
    StoreAt,
    Turn,
    Waits,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import LATE, Rendezvous
from bftrainer_slurm.sizes import ANY, Sizes
from scripts.labcluster.stage import REPO
from tests.keeper.simulated import Process, World

DOCS = REPO / "docs" / "internals" / "keeper.md"


def started(tasks: int, sizes: Sizes = ANY) -> World:
    """A rendezvous of so many elements, in its first generation."""
    world = World(want=tasks, sizes=sizes)
    for task in range(1, tasks + 1):
        world.start(task)
    world.settle(3)
    assert {process.number for process in world.processes} == {1}
    return world


def warm(world: World, task: int) -> Process:
    process = world.start(task)
    process.say_ready("new")
    return process


def world_of(process: Process) -> int:
    assert process.generation is not None
    return process.generation.world


def hear_all(world: World) -> None:
    for process in world.processes:
        while process.alive and process.inbox:
            process.take_message()


def test_the_states_in_the_docs_are_those_of_the_code() -> None:
    code = list[list[str]]()
    for line in (rendezvous.__doc__ or "").split("===  ===")[-3].splitlines()[1:-1]:
        cells = [line[:13].strip(), line[13:49].strip(), line[49:].strip()]
        if cells[0]:
            code.append(cells)
        else:
            code[-1] = [f"{one} {more}".strip() for one, more in zip(code[-1], cells, strict=True)]
    docs = [row for row in DOCS.read_text().splitlines() if row.count(" | ") == 2]
    assert [f"| {' | '.join(cells)} |".replace("``", "`") for cells in code] == docs[1:5]


# The first generation.


def test_the_first_generation_is_formed_when_the_planned_nodes_are_ready() -> None:
    world = World(want=2)
    first = warm(world, 1)
    assert not first.inbox
    second = warm(world, 2)
    hear_all(world)
    assert world_of(first) == world_of(second) == 2


@pytest.mark.parametrize(("want", "after_s"), [(3, 10.0), (0, 1.0)])
def test_the_first_generation_does_not_wait_for_long(want: int, after_s: float) -> None:
    world = World(want)
    process = warm(world, 1)
    world.wait_until(after_s - 0.1)
    assert not process.inbox
    world.wait_until(after_s)
    hear_all(world)
    assert world_of(process) == 1


def test_rank_0_opens_the_store_and_the_others_are_told_where() -> None:
    world = started(3)
    generations = [process.generation for process in world.processes]
    stores = {one.rank: one.store for one in generations if one is not None}
    assert stores == {0: None, 1: "n:1001", 2: "n:1001"}


# Joining.


def test_a_newcomer_is_announced_only_when_it_is_warm() -> None:
    world = started(1)
    newcomer = world.start(2)
    world.wait_until(100.0)
    hear_all(world)
    assert world.processes[0].change is None
    newcomer.say_ready("new")
    hear_all(world)
    assert world.processes[0].change == Change(planned=True, why="join")


def test_newcomers_join_together_if_the_others_are_warm_soon() -> None:
    world = started(1)
    world.start(2), world.start(3)
    world.processes[1].say_ready("new")
    world.wait_until(2.0)
    hear_all(world)
    assert world.processes[0].change is None
    world.processes[2].say_ready("new")
    hear_all(world)
    assert world.processes[0].change is not None
    world.settle(6)
    assert {world_of(process) for process in world.processes} == {3}


def test_a_newcomer_does_not_wait_for_long_for_others() -> None:
    world = started(1)
    world.start(2), world.start(3)
    world.processes[1].say_ready("new")
    world.wait_until(3.0)
    hear_all(world)
    assert world.processes[0].change is not None


# Only some sizes.

SIZES = Sizes((2, 4, 8))


def test_after_a_loss_it_goes_on_at_a_size_that_is_allowed() -> None:
    world = started(4, sizes=SIZES)
    world.kill(world.processes[1])
    world.settle(8)
    live = [one for one in world.processes if one.alive]
    assert [world_of(one) for one in live if not one.waiting] == [2, 2]
    assert [one.identity.task for one in live if one.waiting] == [4]  # the one that came last
    world.wait_until(1_000.0)
    world.settle(8)
    assert {one.number for one in live if not one.waiting} == {2}, "nothing else changes"
    warm(world, 5)
    world.settle(8)
    assert [world_of(one) for one in world.processes if one.alive] == [4] * 4


def test_below_its_least_size_all_wait() -> None:
    world = started(2, sizes=SIZES)
    world.settle(4)
    world.end(world.processes[0])
    world.settle(4)
    (left,) = (one for one in world.processes if one.alive)
    assert left.waiting
    newcomer = warm(world, 3)
    world.settle(1)
    world.wait_until(world.now_s + 10.0)  # two of four that are planned
    world.settle(4)
    assert world_of(left) == world_of(newcomer) == 2


def test_the_first_generation_has_a_size_that_is_allowed() -> None:
    world = World(want=4, sizes=SIZES)
    for task in (1, 2, 3):
        warm(world, task)
    world.wait_until(9.9)
    assert not any(one.inbox for one in world.processes)
    world.wait_until(10.0)
    hear_all(world)
    assert [one.generation and one.generation.world for one in world.processes] == [2, 2, None]


def test_a_newcomer_that_makes_no_allowed_size_waits() -> None:
    world = started(2, sizes=Sizes(step=2))
    warm(world, 3)
    world.wait_until(100.0)
    hear_all(world)
    assert world.processes[0].change is None
    warm(world, 4)
    world.settle(6)
    assert {world_of(one) for one in world.processes} == {4}


def test_the_sizes_of_a_run_are_those_of_its_group() -> None:
    run = Rendezvous(4, sizes=SIZES)
    for key in (1, 2, 3):
        run.join(key, Identity(12, key, f"n{key}", Role.AGENT), None, 0.0)
        run.hear(key, Ready(), 0.0)
    run.own(3, Sizes(step=3), NOBODY, 1.0)
    told = [one.message for one in run.outputs() if isinstance(one, Send)]
    assert [one.world for one in told if isinstance(one, Generation)] == [3]


# Losing.


def test_a_loss_is_told_at_once() -> None:
    world = started(3)
    world.kill(world.processes[0])
    hear_all(world)
    for survivor in world.processes[1:]:
        assert survivor.change == Change(planned=False, why="loss")


def test_survivors_go_on_without_waiting_for_anything() -> None:
    world = started(3)
    world.kill(world.processes[1])
    world.settle(5)
    assert [world_of(one) for one in world.processes if one.alive] == [2, 2]
    assert world.now_s == 0.0


def test_a_task_that_slurm_says_is_gone_is_lost() -> None:
    world = started(2)
    world.run.lose_task(1, "n1", world.now_s)
    world.deliver()
    hear_all(world)
    assert world.processes[1].change == Change(planned=False, why="loss")


def test_but_not_one_that_is_on_another_node_by_then() -> None:
    world = started(2)
    world.run.lose_task(1, "n9", world.now_s)
    world.deliver()
    hear_all(world)
    assert [one.change for one in world.processes] == [None, None]


def test_who_is_not_ready_five_minutes_after_the_first_was_is_dropped() -> None:
    world = started(2)
    warm(world, 3)
    first, second, _ = world.processes
    world.wait_until(200.0)
    first.take_message()
    first.train()
    world.wait_until(499.0)
    assert not any(isinstance(one, Dropped) for one in second.inbox)
    world.wait_until(500.0)
    assert isinstance(second.inbox[-1], Dropped)
    first.take_message()
    assert world_of(first) == 2


def test_a_validation_of_half_an_hour_drops_nobody_and_a_newcomer_waits_for_its_end() -> None:
    world = started(2)
    newcomer = warm(world, 3)
    hear_all(world)
    world.wait_until(1_800.0)
    assert not any(isinstance(one, Dropped) for process in world.processes for one in process.inbox)
    assert not newcomer.inbox
    world.settle(12)
    assert {process.number for process in world.processes} == {2}


def test_one_that_is_to_leave_does_not_make_the_others_late() -> None:
    world = started(2)
    leaver, other = world.processes
    world.part({1})
    newcomer = warm(world, 3)
    leaver.say_ready()
    world.wait_until(1_800.0)
    assert not any(isinstance(one, Dropped) for one in other.inbox)
    assert not newcomer.inbox


def test_survivors_that_all_hang_are_dropped_and_who_comes_waits_until_slurm_has_ended_them() -> (
    None
):
    world = started(3)
    first, second, third = world.processes
    newcomer = warm(world, 4)
    world.kill(third)
    world.wait_until(299.0)
    assert not any(isinstance(one, Dropped) for one in (*first.inbox, *second.inbox))
    world.wait_until(300.0)
    assert all(isinstance(one.inbox[-1], Dropped) for one in (first, second))
    world.wait_until(400.0)
    assert [type(one) for one in newcomer.inbox] == [Waits]  # they may write yet
    for one in (first, second, third):
        world.end(one)
    hear_all(world)
    assert world_of(newcomer) == 1


@pytest.mark.parametrize("store", [True, False], ids=["with a store", "without"])
def test_survivors_that_all_hang_while_their_group_forms_are_dropped_too(store: bool) -> None:
    world = World(want=3)
    first, second, third = (warm(world, task) for task in (1, 2, 3))
    if store:
        first.take_message()
    world.kill(third)
    world.wait_until(300.0)
    assert first.inbox[-1] == Dropped(LATE)
    # Without a store the second has never been told to form anything: it goes on alone.
    assert type(second.inbox[-1]) is (Dropped if store else Generation)


def test_rank_0_that_opens_no_store_is_dropped() -> None:
    world = World(want=2)
    first, second = warm(world, 1), warm(world, 2)
    assert world.run.due_s() == 60.0
    world.wait_until(60.0)
    assert isinstance(first.inbox[-1], Dropped)
    second.take_message()
    assert second.number == 2


def test_who_ended_well_is_no_loss() -> None:
    world = started(2)
    world.run.hear(world.processes[0].key, Done(), world.now_s)
    world.deliver()
    assert not world.processes[1].inbox


def test_who_comes_when_the_training_has_finished_is_told_so_and_begins_nothing() -> None:
    world = started(2)
    waiting = world.start(3)
    world.say(world.processes[0], Done())
    late = world.start(4)
    assert list(waiting.inbox) == list(late.inbox) == [Finished()]
    world.say(world.processes[1], Done())
    later = world.start(5)
    assert list(later.inbox) == [Finished()]


def test_agents_that_have_not_finished_are_left_alone_once_another_one_has() -> None:
    world = started(3)
    saves = world.processes[0]
    world.say(world.processes[1], Finishing())
    late = world.start(4)
    world.kill(world.processes[2])
    assert list(late.inbox) == [Finished()]
    assert not saves.inbox


def test_agents_whose_processes_have_ended_wait_for_the_others_and_for_no_lost_one() -> None:
    world = started(3)
    first, second, third = world.processes
    for one in (first, second):
        world.say(one, Finishing())
    assert not first.inbox
    world.kill(third)
    assert list(first.inbox) == list(second.inbox) == [Change(False, "finished")]


def test_what_fails_at_the_end_of_a_finished_training_does_not_begin_it_again() -> None:
    world = started(2)
    finished, failed = world.processes
    world.say(finished, Finishing())
    world.say(failed, Ready("failed", "connection closed by peer"))
    assert list(failed.inbox) == [Finished()]
    assert all(note.kind is not NoteKind.FAILED for note in world.notes)


def test_the_newest_of_very_many_trainings_are_known_to_have_ended() -> None:
    run = Rendezvous()
    identity = Identity(7, 1, "n1", Role.AGENT)
    for number in range(250):
        run.join(number, replace(identity, program=f"{number:x}"), None, 0.0)
        run.hear(number, Done(), 0.0)
        run.lose(number, 0.0)
    run.outputs()
    for number in (149, 150, 249):
        run.join(number, replace(identity, task=number, program=f"{number:x}"), None, 0.0)
    assert sent(run) == [(150, Finished()), (249, Finished())]


def test_a_batch_script_may_run_a_program_again() -> None:
    world = started(2)
    for one in list(world.processes):
        world.say(one, Finishing())
        world.say(one, Done())
    again = warm(world, 1)
    world.wait_until(10.0)
    assert [type(message) for message in again.inbox] == [Generation]


def test_a_batch_script_may_run_another_program_afterwards() -> None:
    world = started(1)
    world.say(world.processes[0], Done())
    (finished,) = world.processes
    world.run.join(9, replace(finished.identity, program="b"), None, world.now_s)
    world.run.hear(9, Ready(), world.now_s)
    assert any(isinstance(one, Send) and one.key == 9 for one in world.run.out)


# Leaving.


def test_a_planned_leave_stops_all_and_releases_the_leaver() -> None:
    world = started(3)
    leaver, *others = world.processes
    world.part({1})
    world.settle(8)
    assert leaver.released
    assert not world.run.holds({1})
    assert [world_of(one) for one in others] == [2, 2]


def test_an_agent_that_got_sigterm_is_gone_at_once() -> None:
    world = started(2)
    world.say(world.processes[1], Leave())
    hear_all(world)
    assert world.processes[1].released
    assert world.processes[0].change == Change(planned=False, why="leave")


def test_when_all_are_to_leave_all_are_released_at_a_boundary() -> None:
    world = started(2)
    world.part({1, 2})
    world.settle(8)
    assert all(process.released for process in world.processes)


def test_a_newcomer_that_is_to_leave_is_released_at_once() -> None:
    world = started(1)
    newcomer = world.start(2)
    world.part({2})
    assert list(newcomer.inbox) == [Released()]


def test_what_says_nothing_new_costs_the_keeper_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started(2)
    waiting = warm(world, 3)
    ticks: list[float] = []
    monkeypatch.setattr(Rendezvous, "_look", lambda rendezvous, now_s: ticks.append(now_s))
    for message in (Ready("new"), Measured((("steps", 1.0),))):
        world.run.hear(waiting.key, message, world.now_s)
    assert not ticks


def test_those_of_one_generation_keep_their_places() -> None:
    world = started(4)
    world.kill(world.processes[1])
    world.settle(4)
    last = world.processes[0].generation
    assert last is not None
    assert [peer.task for peer in last.members] == [1, 3, 4]


# After the keeper was away.


def rejoined(world: World, tasks: range, generation: int = 7, size: int = 2) -> list[Process]:
    processes = []
    for task in tasks:
        process = Process(world, 100 + task, Identity(12, task, f"n{task}", Role.AGENT))
        world.processes.append(process)
        held = Held(generation, rank=task, world=size)
        world.run.join(process.key, process.identity, held, world.now_s)
        processes.append(process)
    world.deliver()
    return processes


def reformed(generation: float, nodes: float) -> Note:
    """What the controller is told of a generation of processes."""
    measures = (("generation", generation), ("nodes", nodes))
    return Note(NoteKind.REFORMED, 12, measures=measures, tasks=f"0-{int(nodes) - 1}")


def test_those_who_come_back_are_adopted_without_a_change() -> None:
    world = World()
    back = rejoined(world, range(2))
    world.wait_until(1_000.0)
    assert not any(process.inbox for process in back)
    assert world.notes == [reformed(7, 2)]


def test_who_has_not_come_back_in_time_is_lost() -> None:
    world = World()
    (back,) = rejoined(world, range(1))
    world.wait_until(9.9)
    assert not back.inbox
    world.wait_until(10.0)
    assert list(back.inbox) == [Change(planned=False, why="loss")]


def test_no_change_is_planned_before_all_are_back() -> None:
    world = World()
    (first,) = rejoined(world, range(1))
    newcomer = warm(world, 5)
    world.wait_until(5.0)
    assert not first.inbox
    rejoined(world, range(1, 2))
    hear_all(world)
    assert first.change == Change(planned=True, why="join")
    assert newcomer.waiting


def test_the_highest_generation_lives_whoever_comes_back_first() -> None:
    world = World(want=3)
    world.run.away.hold_until_s = 10.0
    (straggler,) = rejoined(world, range(9, 10), generation=5, size=10)
    others = rejoined(world, range(3), generation=9, size=3)
    assert isinstance(straggler.inbox[0], Dropped)
    assert not straggler.connected
    assert not any(process.inbox for process in others)
    assert world.notes == [reformed(9, 3)]


def test_who_is_alone_waits_for_those_of_a_later_generation_before_it_changes() -> None:
    world = World(want=3)
    world.run.away.hold_until_s = 10.0
    (straggler,) = rejoined(world, range(1), generation=5, size=1)
    warm(world, 7)
    world.wait_until(9.0)
    hear_all(world)
    assert straggler.change is None
    rejoined(world, range(1, 2), generation=9, size=2)
    hear_all(world)
    assert not straggler.connected or straggler.waiting
    assert world.run.generation.number == 9


def test_all_nodes_of_the_plan_wait_for_nobody_after_a_keepers_return() -> None:
    world = World(want=2)
    world.run.away.hold_until_s = 10.0
    first, _ = rejoined(world, range(2))
    warm(world, 7)
    hear_all(world)
    assert first.change == Change(planned=True, why="join")


def test_who_comes_back_while_a_change_is_planned_hears_of_it_again() -> None:
    world = started(2)
    first, _ = world.processes
    warm(world, 3)
    first.inbox.clear()  # lost with its connection
    first.key = 99
    world.run.join(99, first.identity, Held(1, 0, 2), world.now_s)
    world.deliver()
    assert list(first.inbox) == [Change(planned=True, why="join")]
    world.settle(8)
    assert {process.number for process in world.processes} == {2}


def cut_off(world: World, processes: list[Process]) -> None:
    for process in processes:
        process.inbox.clear()
        process.connected = False
        world.run.lose(process.key, world.now_s)
    world.deliver()


def test_who_does_not_come_back_after_all_were_cut_off_is_lost() -> None:
    world = started(2)
    cut_off(world, world.processes)
    (back,) = rejoined(world, range(1), generation=1)
    world.wait_until(9.9)
    assert not back.inbox
    world.wait_until(10.0)
    assert [(one.planned, one.why) for one in back.inbox if isinstance(one, Change)] == [
        (False, "loss")
    ]


def test_who_was_cut_off_joins_anew_where_a_generation_was_formed_meanwhile() -> None:
    world = started(2)
    cut_off(world, world.processes[:1])
    world.settle(4)
    (back,) = rejoined(world, range(1), generation=1)
    assert isinstance(back.inbox[0], Dropped)


def test_who_holds_what_is_out_of_date_joins_anew() -> None:
    world = started(2)
    (old,) = rejoined(world, range(9, 10), generation=1, size=12)
    assert isinstance(old.inbox[0], Dropped)


def test_numbers_go_on_from_the_highest_that_was_held() -> None:
    world = World()
    rejoined(world, range(2))
    world.kill(world.processes[0])
    world.processes[1].say_ready()
    hear_all(world)
    assert world.processes[1].number == 8


def test_a_second_connection_of_a_member_takes_the_place_of_its_first() -> None:
    world = started(2)
    before = world.processes[1]
    world.run.join(99, before.identity, Held(1, 1, 2), world.now_s)
    out = world.run.outputs()
    assert HangUp(before.key) in out
    assert not any(isinstance(one, Send) for one in out)


def test_another_process_in_a_members_place_is_a_loss_and_a_newcomer() -> None:
    world = started(2)
    world.run.join(99, world.processes[1].identity, None, world.now_s)
    world.deliver()
    hear_all(world)
    assert world.processes[0].change == Change(planned=False, why="loss")


def test_no_first_generation_while_members_may_come_back() -> None:
    world = World(want=1)
    world.run.away.hold_until_s = 10.0
    process = warm(world, 1)
    world.wait_until(9.9)
    assert not process.inbox
    world.wait_until(10.0)
    hear_all(world)
    assert world_of(process) == 1


# Failing.


def failing(tasks: int) -> World:
    world = started(tasks)
    for process in world.processes:
        world.say(process, Ready("failed", f"Error on n{process.identity.task}"))
        process.waiting = True
    return world


def failures(world: World) -> list[Note]:
    return [note for note in world.notes if note.kind is NoteKind.FAILED]


def test_the_first_failure_of_a_generation_is_passed_on_when_nothing_explains_it() -> None:
    world = failing(2)
    world.wait_until(1.9)
    assert not failures(world)
    world.wait_until(2.0)
    on = (("nodes", 2.0),)
    assert failures(world) == [Note(NoteKind.FAILED, 12, 1, "n1", on, "Error on n1")]


def test_the_size_of_the_generation_that_failed_is_told_though_the_next_has_another() -> None:
    world = failing(3)
    world.run.sizes = Sizes(without=(3,))
    world.wait_until(1.9)
    hear_all(world)
    assert world_of(world.processes[0]) == 2
    world.wait_until(3.0)
    assert [dict(note.measures) for note in failures(world)] == [{"nodes": 3.0}]


@pytest.mark.parametrize("cause", ["failed", "change"])
@pytest.mark.parametrize(
    ("text", "also"), [("Error on n1", 2.0), ("Traceback\nError on n1\n", 2.0), ("other", None)]
)
def test_another_that_fails_at_the_same_time_is_named_if_it_says_the_same(
    text: str, also: float | None, cause: str
) -> None:
    world = started(3)
    world.say(world.processes[0], Ready("failed", "Error on n1"))
    world.say(world.processes[1], Ready(cause, text))
    world.say(world.processes[2], Ready("change"))
    world.wait_until(3.0)
    assert [dict(note.measures).get("also") for note in failures(world)] == [also]


def test_a_loss_soon_after_explains_a_failure() -> None:
    world = started(3)
    world.say(world.processes[1], Ready("failed", "peer closed"))
    world.now_s = 1.0
    world.kill(world.processes[0])
    world.wait_until(10.0)
    assert not failures(world)


def test_a_loss_just_before_explains_a_failure() -> None:
    world = started(3)
    world.kill(world.processes[0])
    world.now_s = 1.5
    world.say(world.processes[1], Ready("failed", "peer closed"))
    world.wait_until(10.0)
    assert not failures(world)


def test_after_failures_in_a_row_the_next_generation_comes_later_and_later() -> None:
    world = failing(1)
    (process,) = world.processes
    pauses = []
    for _ in range(7):
        before_s = world.now_s
        while not process.inbox:
            world.wait_until(world.run.due_s())
        pauses.append(world.now_s - before_s)
        hear_all(world)
        process.waiting = True
        world.say(process, Ready("failed", "again"))
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_after_a_generation_that_made_steps_the_next_comes_at_once() -> None:
    world = started(1)
    (process,) = world.processes
    world.say(process, Measured((("steps", 10.0),)))
    process.waiting = True
    world.say(process, Ready("failed", "out of memory"))
    hear_all(world)
    assert process.number == 2
    assert world.now_s == 0.0


def test_what_fails_again_since_the_scripts_node_was_lost_ends_on_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started(2)
    monkeypatch.setattr(Batches, "orphaned", True)

    def fail() -> None:
        for process in world.processes:
            process.waiting = True
            world.say(process, Ready("failed", "no such file"))

    fail()
    world.wait_until(world.now_s + 1.0)
    hear_all(world)
    assert [process.number for process in world.processes] == [2, 2]
    fail()
    assert [process.inbox[-1] for process in world.processes] == [Finished(1), Finished(1)]
    world.wait_until(world.now_s + 10.0)
    assert not failures(world), "the script's node is to blame"


# A run.


def sent(run: Rendezvous) -> list[tuple[int, object]]:
    return [(one.key, one.message) for one in run.outputs() if isinstance(one, Send)]


def member(task: int) -> Identity:
    return Identity(12, task, f"n{task}", Role.AGENT)


@pytest.mark.parametrize("another", [False, True])
def test_who_has_left_says_so_to_this_keeper_or_another_and_the_controller_hears_it(
    another: bool,
) -> None:
    run = Rendezvous(want=1)
    run.join(0, member(1), None, 0.0)
    if not another:
        run.part({1}, 0.0)
        assert sent(run) == [(0, Released())]
    for _ in range(2):
        run.hear(0, Left(), 0.0)
    notes = [one for one in run.outputs() if isinstance(one, Note)]
    assert notes == [Note(NoteKind.LEFT, 12, 1, "n1")]
    assert not run.members


def test_one_of_a_generation_that_says_it_has_left_is_a_loss() -> None:
    run = Rendezvous(want=2)
    for task in (1, 2):
        run.join(task, member(task), None, 0.0)
        run.hear(task, Ready(), 0.0)
    run.hear(1, StoreAt("n1:1", 1), 0.0)
    run.outputs()
    run.hear(2, Left(), 0.0)
    assert sent(run) == [(1, Change(planned=False, why="loss"))]


def test_the_scripts_node_hears_of_a_step_as_soon_as_its_first_agent_comes() -> None:
    run = Rendezvous(want=2)
    run.join(0, Identity(12, 1, "n1", Role.BATCH), None, 0.0)
    run.hear(0, Batch("leads"), 0.0)
    run.outputs()
    run.join(1, replace(member(1), step=3), None, 0.0)
    assert sent(run) == [(0, Turn("trains", 3))]


@pytest.mark.parametrize("beside", [False, True])
def test_where_steps_ran_at_the_same_time_none_is_known_to_have_finished(beside: bool) -> None:
    """The first srun of a script that runs again may be another one then."""
    run = Rendezvous(want=1)
    run.join(0, Identity(12, 1, "n1", Role.BATCH), None, 0.0)
    run.hear(0, Batch("leads", 0, "c3RlcA==", beside=beside), 0.0)
    run.join(1, member(1), None, 0.0)
    run.hear(1, Ready(), 0.0)
    run.hear(1, Done(), 0.0)
    run.lose(1, 0.0)
    run.outputs()
    run.join(2, member(2), None, 0.0)
    assert (Finished() in [message for _, message in sent(run)]) is not beside


@pytest.mark.parametrize("finished", [False, True])
def test_at_the_end_of_a_script_its_step_is_stopped_unless_it_has_finished(finished: bool) -> None:
    run = Rendezvous(want=1)
    for key, doing in ((0, "leads"), (10, "steps")):
        run.join(key, Identity(12, key, f"n{key}", Role.BATCH), None, 0.0)
        run.hear(key, Batch(doing, 0, "c3RlcA=="), 0.0)
    run.join(1, member(10), None, 0.0)
    run.hear(1, Ready(), 0.0)
    if finished:
        run.hear(1, Finishing(), 0.0)
    run.outputs()
    run.hear(0, Batch("over"), 0.0)
    assert sent(run) == [(10, Turn("over" if finished else "stop"))]


def test_at_the_end_of_a_run_all_are_out() -> None:
    run = Rendezvous(want=1)
    run.join(1, member(1), None, 0.0)
    run.end()
    out = run.outputs()
    assert [type(one) for one in out] == [Send, HangUp]
    run.lose(1, 0.0)
    assert not run.members
