"""Sharded models (FSDP2) on nodes that come and go, with the real keeper, on gloo."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bftrainer_slurm import elastic
from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.workers import ARRAY, Workers, started_workers

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

Start = Callable[..., Workers]
EPOCHS = 20  # of 25 steps


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start elements 0 to N-1 that train together, with options of ``sharding``."""
    with ExitStack() as stack:
        keeper = stack.enter_context(started_keeper(tmp_path))

        def begin(nodes: int, **options: Any) -> Workers:
            folder = tmp_path / "run"
            given = {"epochs": EPOCHS, "pause_s": 0.02} | options
            workers = stack.enter_context(started_workers(keeper, folder, "sharding", **given))
            workers.own(nodes)
            workers.start(*range(nodes))
            workers.wait_for_world(nodes, *range(nodes))
            return workers

        yield begin


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


def test_nodes_join_and_leave_as_if_there_had_been_one_process(
    start: Start, alone: dict[str, torch.Tensor]
) -> None:
    workers = start(2)
    workers.start(2)
    workers.wait_for_world(3, 0, 1, 2)
    first = next(task for task in range(3) if workers.steps(task)[-1].rank == 0)
    assert workers.keeper.client.part(ARRAY, [first])
    others = [task for task in range(3) if task != first]
    workers.wait_for_world(2, *others)
    assert workers.wait(*others) == [0, 0]
    assert_same(weights(workers), alone)
    assert len({step.process for step in workers.steps()}) == 3
    assert [step.number for step in workers.steps(others[0])] == sorted(
        {step.number for step in workers.steps(others[0])}
    )


def test_after_the_loss_of_a_node_the_same_processes_go_on_from_the_last_checkpoint(
    start: Start, alone: dict[str, torch.Tensor]
) -> None:
    workers = start(3)
    wait_until(lambda: workers.steps(0)[-1].number > 45)
    workers.kill(1)
    workers.wait_for_world(2, 0, 2)
    assert workers.wait(0, 2) == [0, 0]
    steps = workers.steps(0)
    first = next(step for step in steps if step.world == 2)
    last = [step for step in steps if step.world == 3][-1]
    assert last.number - 20 < first.number <= last.number + 1
    assert first.number % 20 == 1  # of the checkpoints' 20 steps
    assert first.process == last.process
    assert_same(weights(workers), alone)


def test_without_any_shard_there_is_nothing_to_train(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="fully_shard"):
        elastic.ShardedTrainer(
            lambda _: (model, torch.optim.SGD(model.parameters())), checkpoint=tmp_path
        )


@pytest.mark.parametrize("every", [1, 10_000], ids=["gathering", "training"])
def test_collectives_that_gloo_never_ends_hold_nobody(start: Start, every: int) -> None:
    workers = start(3, epochs=10_000, forget=True, every=every, pause_s=0.0)
    workers.wait_for_steps(0)
    workers.signal(2, signal.SIGSTOP)
    workers.wait_for_world(2, 0, 1)
