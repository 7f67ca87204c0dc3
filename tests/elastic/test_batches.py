"""How many samples a script trains, read from the batches that its DataLoaders give."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.optim import optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

from bftrainer_slurm.elastic import steps
from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.elastic.steps import Steps, of_this_process, samples_in

X = torch.zeros(8, 3)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    iterator = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(iterator, "__next__", iterator.__next__)
    monkeypatch.setattr(optimizer, "register_optimizer_step_post_hook", lambda hook: None)
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    found: list[int] = []
    monkeypatch.setattr(of_this_process(), "given", found.append)
    steps.count()
    yield found


@pytest.mark.parametrize(
    "batch",
    [X, (X, X[0]), [X], {"input_ids": X}, {"ids": ["a", "b"], "x": {"deep": X}}, ("text", X)],
)
def test_a_batch_has_as_many_samples_as_its_first_tensor(batch: object) -> None:
    assert samples_in(batch) == 8


@pytest.mark.parametrize("batch", [None, 3, "text", [], {}, torch.tensor(1.0)])
def test_where_there_is_none_the_samples_are_not_known(batch: object) -> None:
    assert samples_in(batch) == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_each_batch_of_a_loader_is_told(told: list[int], workers: int) -> None:
    for _ in DataLoader(TensorDataset(torch.zeros(20, 3)), batch_size=8, num_workers=workers):
        pass
    assert told == [8, 8, 4]


def test_validation_is_no_training(told: list[int]) -> None:
    with torch.no_grad():
        for _ in DataLoader(TensorDataset(X), batch_size=8):
            pass
    assert told == []


def test_a_step_counts_what_was_given_since_the_last_one() -> None:
    memory = Memory.made()
    process = Steps(memory)
    process.passes_back()
    for _ in range(3):
        process.given(4)
        process.given(4)
        process.by_optimizer("one")
    assert (memory.read().steps, memory.read().samples) == (3, 24)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("skipped", [0, 4])
def test_batches_that_are_skipped_at_the_beginning_are_not_trained(
    monkeypatch: pytest.MonkeyPatch, skipped: int, accumulated: int
) -> None:
    """As a script does that goes on in the middle of an epoch."""
    memory = Memory.made()
    process = Steps(memory)
    monkeypatch.setattr(steps, "_steps", process)
    model = torch.nn.Linear(3, 1)
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.zeros(32, 3)), batch_size=4)):
        if number >= skipped:
            model(x).sum().backward()
            if (number + 1) % accumulated == 0:
                process.by_optimizer(model)
    assert memory.read().samples == 32 - 4 * skipped


def test_where_gradients_come_in_another_way_batches_skipped_are_not_trained() -> None:
    memory = Memory.made()
    process = Steps(memory)
    for _ in range(5):
        process.given(4)
    for _ in range(2):
        process.by_optimizer("one")
        process.given(4)
    assert memory.read().samples == 8


def test_a_step_that_only_makes_an_optimizers_state_is_none() -> None:
    memory = Memory.made()
    process = Steps(memory)
    one = torch.optim.AdamW([torch.zeros(1)], lr=0.0)
    process.by_optimizer(one)
    one.param_groups[0]["lr"] = 0.1
    process.given(4)
    process.by_optimizer(one)
    assert (memory.read().steps, memory.read().samples) == (1, 4)


def test_the_first_step_of_a_warm_up_whose_rate_is_0_counts() -> None:
    memory = Memory.made()
    process = Steps(memory)
    one = torch.optim.AdamW([torch.zeros(1)], lr=0.0)
    for _ in range(2):
        process.given(4)
        process.passes_back()
        process.by_optimizer(one)
        process.by_optimizer(one)  # as torch.distributed.checkpoint does where it saves
    assert (memory.read().steps, memory.read().samples) == (2, 8)
