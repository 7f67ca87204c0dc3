"""Sharded models (FSDP2) on nodes that come and go, with the real keeper, on gloo."""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.alone import as_new_process
from tests.elastic.inprocess import Numbers
from tests.elastic.sharding import build
from tests.elastic.workers import Workers, log_of, started_workers

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        torch_private.missing(torch_private.SHARDING) is not None,
        reason="ShardedTrainer needs FSDP2 as torch has it from 2.9 on",
    ),
]

Start = Callable[..., Workers]
EPOCHS = 6  # of 25 steps


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start elements 0 to N-1 that train together, with options of ``sharding``."""
    with ExitStack() as stack:
        keeper = stack.enter_context(started_keeper(tmp_path))

        def begin(nodes: int, **options: Any) -> Workers:
            folder = tmp_path / "run"
            given = {"epochs": EPOCHS, "pause_s": 0.05} | options
            workers = stack.enter_context(started_workers(keeper, folder, "sharding", **given))
            workers.train_on(*range(nodes))
            return workers

        yield begin


@pytest.fixture
def new_process() -> Iterator[None]:
    with as_new_process():
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights that one process ends with, to which nothing has happened."""
    folder = tmp_path_factory.mktemp("alone")
    with (
        started_keeper(folder) as keeper,
        started_workers(keeper, folder / "run", "sharding", epochs=EPOCHS, pause_s=0.0) as workers,
    ):
        workers.own(1)
        workers.start(0)
        assert workers.wait(0) == [0]
        return weights(workers)


def weights(workers: Workers) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(workers.folder / "weights")
    return found


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def around_the_loss(workers: Workers, task: int) -> tuple[Any, Any]:
    """The last step that an element tried in its largest world, and the first in a smaller one."""
    steps = workers.steps(task)
    world = max(step.world for step in steps)
    first = next(
        step for step, before in zip(steps[1:], steps, strict=False) if step.world < before.world
    )
    return [step for step in steps if step.world == world][-1], first


def test_nodes_join_and_leave_as_if_there_had_been_one_process(
    start: Start, alone: dict[str, torch.Tensor]
) -> None:
    workers = start(2, awaits=[3, 2])
    workers.start(2)
    workers.wait_for_world(3, 0, 1, 2)
    first = next(task for task in range(3) if workers.steps(task)[-1].rank == 0)
    workers.part(first)
    others = [task for task in range(3) if task != first]
    workers.wait_for_world(2, *others)
    assert workers.wait(*others) == [0, 0]
    assert_same(weights(workers), alone)
    assert len({step.process for step in workers.steps()}) == 3
    assert [step.number for step in workers.steps(others[0])] == sorted(
        {step.number for step in workers.steps(others[0])}
    )


@pytest.mark.parametrize("lost", [0, 2])
def test_the_loss_of_a_node_costs_the_same_processes_one_step_at_most(
    start: Start, alone: dict[str, torch.Tensor], lost: int
) -> None:
    workers = start(3, every=10_000)
    wait_until(lambda: workers.steps(lost)[-1].number > 10)
    workers.kill(lost)
    others = [task for task in range(3) if task != lost]
    workers.wait_for_world(2, *others)
    assert workers.wait(*others) == [0, 0]
    for task in others:
        last, first = around_the_loss(workers, task)
        assert last.number <= first.number
        assert first.process == last.process
    assert_same(weights(workers), alone)


def test_one_loss_after_the_other_costs_a_step_each(
    start: Start, alone: dict[str, torch.Tensor]
) -> None:
    workers = start(3, every=10_000)
    for left in (2, 1):
        wait_until(lambda: workers.steps(0)[-1].number > 10)
        workers.kill(left)
        workers.wait_for_world(left, *range(left))
    assert workers.wait(0) == [0]
    numbers = [step.number for step in workers.steps(0)]
    assert len(numbers) - len(set(numbers)) <= 2
    assert_same(weights(workers), alone)


def test_copies_may_be_made_more_seldom(start: Start, alone: dict[str, torch.Tensor]) -> None:
    workers = start(3, every=10_000, copy_every=7)
    wait_until(lambda: workers.steps(0)[-1].number > 10)
    workers.kill(1)
    workers.wait_for_world(2, 0, 2)
    assert workers.wait(0, 2) == [0, 0]
    last, first = around_the_loss(workers, 0)
    assert last.number - 7 < first.number
    assert first.number % 7 == 1
    assert_same(weights(workers), alone)
    said = next(line for task in (0, 2) for line in log_of(workers, task) if "n1 was lost" in line)
    assert re.search(r"; training stood still for .*; [\d,]+ samples/s before, ", said), said


def lose_two_of_four(workers: Workers, *ranks: int) -> int:
    """End the nodes of two ranks at once, train to the end, and return a task that stayed.

    Which rank a node has is open: the first to reach the keeper has rank 0.
    """
    wait_until(lambda: workers.steps(0)[-1].number > 25)
    of_rank = {workers.steps(task)[-1].rank: task for task in range(4)}
    lost = [of_rank.pop(rank) for rank in ranks]
    workers.kill(*lost)
    workers.wait_for_world(2, *of_rank.values())
    assert workers.wait(*of_rank.values()) == [0, 0]
    return min(of_rank.values())


def test_after_the_loss_of_neighbours_at_once_it_goes_on_from_the_last_checkpoint(
    start: Start, alone: dict[str, torch.Tensor]
) -> None:
    workers = start(4)
    last, first = around_the_loss(workers, lose_two_of_four(workers, 1, 2))
    assert last.number - 20 < first.number <= last.number + 1
    assert first.number % 20 == 1  # of the checkpoints' 20 steps
    assert first.process == last.process
    assert_same(weights(workers), alone)


def test_the_loss_at_once_of_nodes_that_are_no_neighbours_costs_one_step_at_most(
    start: Start, alone: dict[str, torch.Tensor]
) -> None:
    workers = start(4, every=10_000)
    last, first = around_the_loss(workers, lose_two_of_four(workers, 0, 2))
    assert last.number <= first.number
    assert first.process == last.process
    assert_same(weights(workers), alone)


@pytest.mark.parametrize("hang", ["save", "gather"])
def test_the_last_checkpoint_is_written_though_a_rank_is_lost_at_the_end(
    start: Start, hang: str
) -> None:
    workers = start(2, epochs=2, every=10_000, hang=hang)
    wait_until((hangs := workers.folder / "hangs").exists)
    lost = int(hangs.read_text()[1:])
    workers.kill(lost)
    assert workers.wait(1 - lost) == [0]
    assert any((workers.folder / "checkpoints").glob("step-50-*"))


@pytest.mark.usefixtures("new_process")
def test_a_step_that_was_not_copied_to_the_neighbour_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.elastic.sharding import build  # an older torch, which skips this, cannot load it

    def copy() -> None:
        raise PeerLostError("the neighbour is lost")

    trainer = elastic.ShardedTrainer(build, checkpoint=tmp_path)
    committed = []
    for x, _ in trainer.loader(Numbers(24), 8, 1):
        with trainer.step() as step:
            trainer.backward(trainer.model(x).sum())
            trainer.optimizer.step()
        committed.append(step.committed)
        if len(committed) == 2:
            break
        monkeypatch.setattr(trainer, "changing", True)
        monkeypatch.setattr(trainer, "_copy", copy)
    assert committed == [True, False]


@pytest.mark.usefixtures("new_process")
def test_without_any_shard_there_is_nothing_to_train(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="fully_shard"):
        elastic.ShardedTrainer(
            lambda _: (model, torch.optim.SGD(model.parameters())), checkpoint=tmp_path
        )


@pytest.mark.usefixtures("new_process")
def test_an_optimizer_may_have_no_state(tmp_path: Path) -> None:
    def sharded(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model, _ = build(mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    trainer = elastic.ShardedTrainer(sharded, checkpoint=tmp_path, checkpoint_every=1)
    for x, _ in trainer.loader(Numbers(16), 8, 1, batch="global"):
        with trainer.step():
            trainer.optimizer.zero_grad()
            trainer.backward(trainer.model(x).square().mean())
            trainer.optimizer.step()
    assert trainer.cursor.samples == 16


@pytest.mark.parametrize("every", [1, 10_000], ids=["gathering", "training"])
def test_collectives_that_gloo_never_ends_hold_nobody(start: Start, every: int) -> None:
    workers = start(3, epochs=10_000, forget=True, every=every, pause_s=0.0)
    workers.wait_for_steps(0)
    workers.signal(2, signal.SIGSTOP)
    workers.wait_for_world(2, 0, 1)
