"""Training processes that re-form in process, with the real keeper, on gloo."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.sizes import Sizes
from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.workers import (
    ARRAY,
    Step,
    Workers,
    changed_in_a_row,
    log_of,
    started_workers,
)

pytestmark = pytest.mark.torch

Start = Callable[..., Workers]
SIZE = 200  # samples in an epoch; there are as many epochs as a test wants


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start elements 0 to N-1 that train together until ``end``, with options of ``inprocess``."""
    with ExitStack() as stack:
        keeper = stack.enter_context(started_keeper(tmp_path))

        def begin(nodes: int, local_world: int = 1, **options: Any) -> Workers:
            options = {
                "size": SIZE,
                "epochs": 100_000,
                "stop_after_epoch": str(tmp_path / "stop"),
            } | options
            workers = stack.enter_context(started_workers(keeper, tmp_path / "run", **options))
            if nodes:
                workers.train_on(*range(nodes), ranks=local_world, local_world=local_world)
            else:
                workers.own(0)
            return workers

        yield begin


def test_all_ranks_end_with_the_same_weights_and_each_sample_once_an_epoch(start: Start) -> None:
    workers = start(3, epochs=2)
    assert workers.wait(0, 1, 2) == [0, 0, 0]
    assert_one_state(workers)
    assert_each_sample_once(workers)
    assert {samples for _, samples in workers.ends().values()} == {2 * SIZE}


@pytest.mark.once
def test_under_torchrun_only_the_trainer_reports(start: Start) -> None:
    workers, memory = start(0), Memory.made()
    workers.start(0, BFTRAINER_STEPS=memory.path)
    workers.wait_for_steps(0)
    assert memory.read().in_process
    assert memory.read().steps == 0
    end(workers, 0)


def test_a_newcomer_joins_with_the_survivors_state(start: Start) -> None:
    workers = start(2)
    workers.start(2)
    workers.wait_for_world(3, 0, 1, 2)
    print(f"join: {workers.pauses(0)[-1]:.3f} s")
    first = workers.steps(2)[0]
    assert first.number > 1
    workers.wait_for_steps(0)
    end(workers, 0, 1, 2)
    said = [line for task in range(3) for line in log_of(workers, task) if "n2 came" in line]
    assert len(said) == 1
    assert said[0].startswith("bftrainer: n2 came: 3 nodes; training stood still for ")
    assert re.search(r"; [\d,]+ samples/s before, [\d,]+ samples/s now$", said[0])


@pytest.mark.once
def test_a_node_that_comes_when_the_training_has_finished_ends_well_and_begins_nothing(
    start: Start,
) -> None:
    workers = start(2)
    end(workers, 0, 1)
    Path(workers.options["stop_after_epoch"]).unlink()
    workers.start(2)
    assert workers.wait(2) == [0]
    assert not workers.steps(2)
    said = "bftrainer: this training has finished: n2 has nothing left to do"
    assert said in log_of(workers, 2)


def test_a_group_of_one_whose_gradients_come_in_another_order_trains_with_those_who_join(
    start: Start,
) -> None:
    workers = start(1, swapped="n0")
    workers.wait_for_steps(0)
    workers.start(1, 2)
    workers.wait_for_world(3, 0, 1, 2)
    workers.wait_for_steps(0)
    workers.kill(1)
    workers.wait_for_world(2, 0, 2)
    end(workers, 0, 2)
    assert_one_state(workers)


@pytest.mark.once
def test_a_node_beyond_the_allowed_sizes_waits_with_its_state_and_comes_back(start: Start) -> None:
    workers = start(4)
    workers.own(4, Sizes((2, 4)))
    workers.wait_for_steps(0)
    workers.kill(1)
    left = {0, 2, 3}  # which of these waits depends on who joined first, and is a step ahead
    wait_until(lambda: sum(workers.last_world(task) == 2 for task in left) == 2)
    [waits] = {task for task in left if workers.last_world(task) == 4}
    trains = min(left - {waits})
    waited = len(workers.steps(waits))
    workers.wait_for_steps(trains)
    assert len(workers.steps(waits)) == waited
    workers.start(4)
    workers.wait_for_world(4, 0, 2, 3, 4)
    end(workers, 0, 2, 3, 4)
    worlds = {step.world for task in range(5) for step in workers.steps(task)}
    assert worlds == {2, 4}


def test_a_killed_node_costs_its_step_in_flight_only(start: Start) -> None:
    workers = start(3)
    workers.wait_for_steps(0)
    workers.kill(2)
    workers.wait_for_world(2, 0, 1)
    print(f"kill: {workers.pauses(0)[-1]:.3f} s")
    end(workers, 0, 1)
    task, said = next(
        (task, line) for task in (0, 1) for line in log_of(workers, task) if "n2 was lost" in line
    )
    again = r"1 step \(\d+ samples\) was lost; " if workers.tried_again(task) else ""
    assert re.match(f"bftrainer: n2 was lost: 2 nodes; {again}training stood still for ", said)


def test_rank_0_can_be_the_one_that_is_killed(start: Start) -> None:
    workers = start(3)
    workers.wait_for_steps(0)
    task = next(task for task in range(3) if workers.steps(task)[-1].rank == 0)
    workers.kill(task)
    others = [other for other in range(3) if other != task]
    workers.wait_for_world(2, *others)
    end(workers, *others)


def test_a_node_that_is_to_leave_does_so_after_a_step_and_waits_for_its_end(start: Start) -> None:
    workers = start(3)
    workers.wait_for_steps(0)
    workers.part(2)
    workers.wait_for_world(2, 0, 1)
    print(f"planned leave: {workers.pauses(0)[-1]:.3f} s")
    assert steps_before_change(workers, 0) == steps_before_change(workers, 2)
    assert all(process.is_alive() for process in workers.processes[2])
    given_back = "bftrainer: n2 is given back as the plan says; this is no failure"
    wait_until(lambda: given_back in log_of(workers, 2))
    workers.signal(2, signal.SIGTERM)
    assert workers.wait(2) == [-signal.SIGTERM]


def test_sigterm_ends_a_process_after_its_step_but_not_with_exit_code_0(start: Start) -> None:
    workers = start(3)
    workers.wait_for_steps(0)
    workers.signal(2, signal.SIGTERM)
    assert workers.wait(2) == [-signal.SIGTERM]
    workers.wait_for_world(2, 0, 1)
    print(f"SIGTERM: {workers.pauses(0)[-1]:.3f} s")
    assert steps_before_change(workers, 0) == steps_before_change(workers, 2)


def test_a_frozen_node_is_dropped_and_joins_anew_when_it_thaws(start: Start) -> None:
    workers = start(3)
    workers.wait_for_steps(0)
    workers.signal(2, signal.SIGSTOP)
    workers.wait_for_world(2, 0, 1)
    print(f"freeze: {workers.pauses(0)[-1]:.3f} s")
    workers.signal(2, signal.SIGCONT)
    workers.wait_for_world(3, 0, 1, 2)
    end(workers, 0, 1, 2)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.once)])
def test_a_node_that_was_away_goes_on_from_the_checkpoint_of_those_who_are_gone(
    start: Start, tmp_path: Path, ranks: int
) -> None:
    folder = tmp_path / "checkpoints"
    workers = start(2, local_world=ranks, checkpoint=str(folder))
    workers.wait_for_steps(0)
    workers.signal(1, signal.SIGSTOP)
    workers.wait_for_world(ranks, 0)
    frozen_at = workers.steps(1)[-1].number
    wait_until(lambda: workers.steps(0)[-1].number > frozen_at + 60)
    workers.kill(0)
    saved = max(int(path.name.split("-")[1]) for path in folder.glob("step-*"))
    workers.signal(1, signal.SIGCONT)
    wait_until(lambda: workers.steps(1)[-1].number > saved + 20)
    own = [step.number for step in workers.steps(1)]
    assert saved > frozen_at
    assert not set(range(frozen_at + 2, saved + 1)) & set(own)


@pytest.mark.parametrize("own", [False, True], ids=["averages", "own"])
def test_collectives_that_gloo_never_ends_hold_nobody(start: Start, own: bool) -> None:
    workers = start(3, own=own, forget=True)
    workers.wait_for_steps(0)
    workers.signal(2, signal.SIGSTOP)
    workers.wait_for_world(2, 0, 1)


def test_where_one_of_ours_was_left_out_the_scripts_own_is_not_taken_for_it(start: Start) -> None:
    """gloo ends a process that gets more bytes than it has asked for."""
    workers = start(2, left_out=True)
    for task in (0, 1):
        wait_until(lambda task=task: len({one.generation for one in together(workers, task)}) > 1)
        assert len({step.process for step in workers.steps(task)}) == 1


def together(workers: Workers, task: int) -> list[Step]:
    return [step for step in workers.steps(task) if step.world > 1]


@pytest.mark.parametrize("kind", ["several", "stream"])
def test_what_scripts_are_made_of_is_one_state_whoever_comes_and_goes(
    start: Start, kind: str
) -> None:
    """Several: optimizers, schedulers, parts of a batch, a gradient scaler, an average of weights.

    Stream: an iterable data set with state.
    """
    workers = start(2, batch_size=8, **{kind: True})
    workers.start(2)
    workers.wait_for_world(3, 0, 1, 2)
    workers.wait_for_steps(2)
    workers.kill(0)
    workers.wait_for_world(2, 1, 2)
    workers.wait_for_steps(2)
    end(workers, 1, 2)


@pytest.mark.once
def test_a_node_that_reaches_no_peer_though_all_are_alive_says_so_and_ends(start: Start) -> None:
    workers = start(1, cut_off=1_000, give_up_s=3.0)
    workers.start(1)
    assert workers.wait(1) == [1]
    said = log_of(workers, 1)[-1]
    assert "2 processes that are all alive cannot train together" in said
    assert "No route to host. Check that the nodes reach each other" in said
    workers.wait_for_steps(0)
    end(workers, 0)


@pytest.mark.once
def test_one_that_was_cut_off_for_a_moment_ends_not(start: Start) -> None:
    workers = start(1, cut_off=3)
    workers.start(1)
    workers.wait_for_world(2, 0, 1)
    end(workers, 0, 1)


def test_a_node_of_two_ranks_comes_and_goes_as_one(start: Start) -> None:
    workers = start(2, local_world=2)
    workers.start(2, local_world=2)
    workers.wait_for_world(6, 0, 1, 2)
    one_of_two = workers.processes[2][1]
    one_of_two.kill()
    workers.wait_for_world(4, 0, 1)
    workers.wait_for_steps(0)
    assert {step.rank for step in workers.steps() if step.world == 4} == {0, 1, 2, 3}


@pytest.mark.once
def test_training_goes_on_while_the_keeper_is_away(start: Start) -> None:
    workers = start(2)
    address = workers.keeper.address
    workers.keeper.kill()
    workers.wait_for_steps(0, 50)
    with started_keeper(workers.keeper.state) as again:
        assert again.address == address
        again.client.own(ARRAY, 0, 2)
        before = len(workers.pauses(0))
        workers.start(2)
        workers.wait_for_world(3, 0, 1, 2)
        assert len(workers.pauses(0)) == before + 1
        assert len({step.process for step in workers.steps(0)}) == 1


def test_workers_of_the_data_loader_may_have_prefetched(start: Start) -> None:
    workers = start(2, workers=1)
    workers.start(2)
    workers.wait_for_world(3, 0, 1, 2)
    workers.kill(0)
    workers.wait_for_world(2, 1, 2)
    end(workers, 1, 2)


def test_after_the_loss_of_all_nodes_training_goes_on_from_the_checkpoint(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    workers = start(2, checkpoint=str(folder))
    wait_until(lambda: len(list(folder.glob("step-*"))) == 2)
    for task in (0, 1):
        workers.kill(task)
    steps = [int(path.name.split("-")[1]) for path in folder.glob("step-*")]
    lost_s = time.monotonic()
    workers.start(0, 1)
    workers.wait_for_world(2, 0, 1)
    end(workers, 0, 1)
    after = [step for step in workers.steps() if step.time_s > lost_s]
    assert after[0].number == max(steps) + 1


@pytest.mark.once
def test_the_last_checkpoint_is_written_though_its_writer_is_lost(
    start: Start, tmp_path: Path
) -> None:
    workers = start(2, epochs=10, checkpoint=str(tmp_path / "kept"), every_s=600, hang=True)
    wait_until((hangs := workers.folder / "hangs").exists)
    writer = int(hangs.read_text()[1:])
    workers.kill(writer)
    assert workers.wait(1 - writer) == [0]
    last = max(step.number for step in workers.steps())
    [saved] = (tmp_path / "kept").glob("step-*")
    assert saved.name.split("-")[1] == str(last)


@pytest.mark.timeout(1800)
def test_30_kills_joins_and_leaves_in_a_row_lose_nothing(start: Start) -> None:
    workers = start(2)
    end(workers, *changed_in_a_row(workers, 30, seed=4))


def end(workers: Workers, *tasks: int) -> None:
    """Let these tasks end with the epoch; check their state, and that nothing was lost."""
    Path(workers.options["stop_after_epoch"]).touch()
    assert workers.wait(*tasks) == [0] * len(tasks)
    assert_one_state(workers)
    assert_each_sample_once(workers)


def assert_one_state(workers: Workers) -> None:
    assert len(set(workers.ends().values())) == 1


def assert_each_sample_once(workers: Workers) -> None:
    for epoch, counts in workers.trained().items():
        twice = [sample for sample, count in counts.items() if count > 1]
        assert (epoch, len(counts), twice) == (epoch, workers.options["size"], [])


def steps_before_change(workers: Workers, task: int) -> int:
    """Return the last step that was trained before the world shrank to two."""
    steps: list[Step] = workers.steps(task)
    return max(step.number for step in steps if step.world == 3)
