"""Frameworks that rescale in process, with the real keeper, on gloo."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.labcluster.cluster import free_ports
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.workers import Workers, changed_in_a_row, fork_with, started_workers, wait

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1500)]

Start = Callable[..., Workers]
SIZE = 200  # samples in an epoch


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with started_keeper(tmp_path) as running:
        yield running


@pytest.fixture
def start(keeper: Keeper, tmp_path: Path) -> Iterator[Start]:
    """Start elements 0 to N-1 that train together until ``end``."""
    with ExitStack() as stack:

        def begin(framework: str, nodes: int, **options: Any) -> Workers:
            script = f"tests.frameworks.in_{framework}"
            options = {"size": SIZE, "stop": str(tmp_path / "stop")} | options
            workers = stack.enter_context(
                started_workers(keeper, tmp_path / "run", script, **options)
            )
            workers.own(nodes)
            workers.start(*range(nodes))
            workers.wait_for_world(nodes, *range(nodes))
            return workers

        yield begin


def end(workers: Workers, *tasks: int) -> None:
    """Let these tasks stop; check that they have one state, and trained each sample once."""
    Path(workers.options["stop"]).touch()
    assert workers.wait(*tasks) == [0] * len(tasks)
    assert len(set(workers.ends().values())) == 1
    *whole, last = [counts for _, counts in sorted(workers.trained().items())]
    assert all(len(counts) == SIZE for counts in whole)
    assert {times for counts in [*whole, last] for times in counts.values()} == {1}


FRAMEWORKS = ("huggingface", "lightning")
fork_with(*(f"tests.frameworks.in_{framework}" for framework in FRAMEWORKS))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_whoever_comes_and_goes_all_have_one_state_and_no_sample_is_lost(
    start: Start, framework: str
) -> None:
    workers = start(framework, 2)
    workers.start(2)
    workers.wait_for_world(3, 0, 1, 2)
    workers.wait_for_steps(2)
    workers.kill(0)
    workers.wait_for_world(2, 1, 2)
    workers.wait_for_steps(2)
    workers.start(3)
    workers.wait_for_world(3, 1, 2, 3)
    workers.signal(1, signal.SIGTERM)
    assert workers.wait(1) == [-signal.SIGTERM]
    workers.wait_for_world(2, 2, 3)
    print([workers.pauses(task) for task in (2, 3)])
    end(workers, 2, 3)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_twenty_changes_in_a_row_lose_nothing(start: Start, framework: str) -> None:
    workers = start(framework, 2)
    end(workers, *changed_in_a_row(workers, 20, seed=5))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_any_node_it_goes_on_from_a_checkpoint(start: Start, framework: str) -> None:
    workers = start(framework, 2, save_steps=20, save_s=0.2)
    wait_until(lambda: workers.steps(0)[-1].number > 100)
    workers.kill(0, 1)
    last = max(workers.steps(), key=lambda step: step.time_s)
    workers.start(0, 1)
    workers.wait_for_world(2, 0, 1)
    workers.wait_for_steps(0)
    end(workers, 0, 1)
    again = next(step.number for step in workers.steps() if step.time_s > last.time_s)
    assert 1 < again <= last.number + 1


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_all_end_after_the_last_step_though_some_are_lost_in_it(
    start: Start, framework: str
) -> None:
    workers = start(framework, 3, steps=60, pause_s=0.02)
    wait_until(lambda: workers.steps(0)[-1].number >= 58)
    workers.kill(0)
    assert workers.wait(1, 2) == [0, 0]
    assert {step.number for step in workers.steps()} == set(range(1, 61))
    assert len(set(workers.ends().values())) == 1


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_that_loses_the_others_in_the_last_step_takes_it_from_them_and_ends(
    start: Start, framework: str
) -> None:
    workers = start(framework, 2, steps=60, lose_at=60)
    assert workers.wait(0, 1) == [0, 0]
    assert sorted(step.number for step in workers.steps()) == sorted([*range(1, 60)] * 2 + [60])
    assert len({weights(workers, task) for task in (0, 1)}) == 1


# Lightning counts steps only, and knows nothing of labels that do not count.
OF_THREE_EPOCHS = {"huggingface": {"steps": -1}, "lightning": {"steps": 18, "seen": False}}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_three_ranks_come_to_the_weights_of_one_with_the_same_global_batch(
    keeper: Keeper, tmp_path: Path, framework: str
) -> None:
    """Gradients are averaged before they are clipped, over labels as the loss is."""
    script = f"tests.frameworks.in_{framework}"
    options = {"size": 50, "batch_size": 9, "batch": "global", "seed_weights": True}
    options |= OF_THREE_EPOCHS[framework]
    with started_workers(keeper, tmp_path / "run", script, **options) as workers:
        assert fixed(workers, 1) == [0]
        assert fixed(workers, 3) == [0, 0, 0]
    one = torch.load(workers.folder / "weights.n1.0")
    for rank in range(3):
        many = torch.load(workers.folder / f"weights.n3.{rank}")
        for name in one:
            torch.testing.assert_close(many[name], one[name], rtol=1e-3, atol=1e-5)
    assert {samples for _, samples in workers.ends().values()} == {150}


def weights(workers: Workers, task: int) -> bytes:
    """Return the bytes of the weights with which a task ended."""
    state = torch.load(workers.folder / f"weights.n{task}.0")
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def fixed(workers: Workers, world: int) -> list[int]:
    """Run the script as ranks of a fixed world, and return the exit codes."""
    port = str(free_ports(1)[0])
    ranks = [
        workers.fork(
            f"fixed.{rank}",
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            LOCAL_WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            SLURMD_NODENAME=f"n{world}",
        )
        for rank in range(world)
    ]
    codes = [wait(rank) for rank in ranks]
    shutil.rmtree(workers.folder / "output", ignore_errors=True)
    return codes
