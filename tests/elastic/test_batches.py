"""How many samples a script trains, read from the batches that its DataLoaders give."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

from bftrainer_slurm.elastic import counting
from bftrainer_slurm.elastic.counting import samples_in
from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.elastic.steps import Steps, of_this_process

X = torch.zeros(8, 3)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    iterator = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(iterator, "__next__", iterator.__next__)
    monkeypatch.setattr(counting, "register_optimizer_step_post_hook", lambda hook: None)
    found: list[int] = []
    monkeypatch.setattr(of_this_process(), "given", found.append)
    counting.count()
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
    steps = Steps(memory)
    for _ in range(3):
        steps.given(4)
        steps.given(4)
        steps.by_optimizer("one")
    assert (memory.read().steps, memory.read().samples) == (3, 24)


def test_a_step_that_only_makes_an_optimizers_state_is_none() -> None:
    memory = Memory.made()
    steps = Steps(memory)
    optimizer = torch.optim.AdamW([torch.zeros(1)], lr=0.0)
    steps.by_optimizer(optimizer)
    optimizer.param_groups[0]["lr"] = 0.1
    steps.given(4)
    steps.by_optimizer(optimizer)
    assert (memory.read().steps, memory.read().samples) == (1, 4)
