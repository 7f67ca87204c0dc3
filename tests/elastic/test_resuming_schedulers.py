"""Schedulers that are put to a step, and the samples of an epoch that are passed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from torch.utils.data import BatchSampler, DistributedSampler

from bftrainer_slurm.elastic.resuming.lightning import _Rest, batches_now
from bftrainer_slurm.elastic.resuming.rates import move

pytestmark = pytest.mark.torch

MADE: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "lambda": lambda one: lr_scheduler.LambdaLR(one, lambda step: 1 - step / 20),
    "linear": lambda one: lr_scheduler.LinearLR(one, 1.0, 0.0, 20),
    "cosine": lambda one: lr_scheduler.CosineAnnealingLR(one, 20),
    "step": lambda one: lr_scheduler.StepLR(one, 5),
    "one cycle": lambda one: lr_scheduler.OneCycleLR(one, 0.5, total_steps=20),
}


def made(name: str) -> Any:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
    return MADE[name](optimizer)


def rates(scheduler: Any, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("name", MADE)
def test_a_scheduler_goes_on_from_where_it_is_put(name: str) -> None:
    whole, put = rates(made(name), 19), made(name)
    assert move(put, 7)
    assert rates(put, 12) == pytest.approx(whole[7:])


def test_a_scheduler_that_follows_a_metric_or_its_last_rate_is_left_alone() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    assert not move(lr_scheduler.ReduceLROnPlateau(optimizer), 7)
    assert not move(lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.9), 7)


@pytest.mark.parametrize("then", [1, 2, 3, 5])
@pytest.mark.parametrize("now", [1, 2, 3, 5])
@pytest.mark.parametrize("accumulated", [1, 4])
def test_less_than_a_global_batch_is_trained_again(then: int, now: int, accumulated: int) -> None:
    for trained in range(0, 60 // then, accumulated):
        passed = batches_now(trained, then, now, 60 // now, accumulated)
        again = trained * then - passed * now
        assert 0 <= again < now * accumulated
        assert passed % accumulated == 0
        assert then != now or again == 0


def test_an_epochs_samples_are_passed_over_in_that_epoch_alone() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(range(40), 2, 0)  # type: ignore[arg-type]
    sampler.set_epoch(3)
    whole = list(BatchSampler(sampler, 4, drop_last=False))
    rest = _Rest(sampler, 8, epoch=3)
    batches = BatchSampler(rest, 4, drop_last=False)  # type: ignore[arg-type]
    assert list(batches) == whole[2:]
    assert len(batches) == len(whole)
    rest.set_epoch(4)
    assert list(batches) == list(BatchSampler(sampler, 4, drop_last=False)) != whole
