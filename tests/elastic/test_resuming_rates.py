"""Schedulers of a script's own loop, whose state another number of ranks has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from bftrainer_slurm.elastic import resuming
from bftrainer_slurm.elastic.memory import VARIABLE, Memory
from bftrainer_slurm.elastic.resuming import rates

pytestmark = pytest.mark.torch

EPOCHS, BATCHES = 2, 30  # of all ranks together, in an epoch


_cosine = lr_scheduler.CosineAnnealingLR


def _lambda(one: Any, total: int) -> Any:
    return lr_scheduler.LambdaLR(one, lambda step: max(0, 1 - step / total))


MADE: dict[str, Callable[[Any, int], Any]] = {
    "linear": lambda one, total: lr_scheduler.LinearLR(one, 1.0, 0.0, total),
    "cosine": _cosine,
    "one cycle": lambda one, total: lr_scheduler.OneCycleLR(one, 0.5, total_steps=total),
    "polynomial": lambda one, total: lr_scheduler.PolynomialLR(one, total),
    "milestones": lambda one, total: lr_scheduler.MultiStepLR(one, [total // 2, total * 3 // 4]),
}


@pytest.fixture(autouse=True)
def _changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kind in (getattr(lr_scheduler, name) for name in rates._WITH_A_STATE):
        for name in ("state_dict", "load_state_dict"):
            monkeypatch.setattr(kind, name, getattr(kind, name))
    monkeypatch.setattr(lr_scheduler.LRScheduler, "__init__", lr_scheduler.LRScheduler.__init__)
    monkeypatch.setattr(resuming, "helping", set())
    rates._say_once.cache_clear()
    rates.change(lr_scheduler)
    yield


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Let so many ranks train; return an epoch's steps."""

    def ranks(number: int) -> int:
        monkeypatch.setenv("WORLD_SIZE", str(number))
        return -(-BATCHES // number)

    return ranks


def made(how: Callable[[Any, int], Any], steps: int) -> Any:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
    return how(optimizer, steps)


def train(scheduler: Any, steps: int) -> float:
    for _ in range(steps):
        scheduler.optimizer.step()
        scheduler.step()
    return float(scheduler.optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(("then", "now"), [(1, 3), (3, 1), (2, 3), (7, 4)])
def test_the_rate_goes_on_at_the_same_samples(
    on: Callable[[int], int], name: str, then: int, now: int
) -> None:
    in_epoch = on(then)
    for made_steps in range(1, in_epoch):
        in_epoch = on(then)
        before = made(MADE[name], EPOCHS * in_epoch)
        train(before, in_epoch + made_steps)
        state = before.state_dict()
        in_epoch = on(now)
        passed = in_epoch + made_steps * then // now  # as a loader that is read in samples
        after = made(MADE[name], EPOCHS * in_epoch)
        after.load_state_dict(state)
        unchanged = made(MADE[name], EPOCHS * in_epoch)
        train(unchanged, passed)
        assert passed - 1 <= after.last_epoch <= passed
        train(after, EPOCHS * in_epoch - passed)  # OneCycleLR raises where it has no step left
        train(unchanged, after.last_epoch - unchanged.last_epoch)
        (ends,), (should,) = after.get_last_lr(), unchanged.get_last_lr()
        assert ends == pytest.approx(should, abs=1e-6)
    assert "rates" in resuming.helping
    assert not resuming.counts_samples()


@pytest.mark.parametrize("how", [_lambda, lambda one, _: lr_scheduler.StepLR(one, 5)])
def test_a_frameworks_scheduler_goes_on_from_the_step_where_it_is_put(how: Any) -> None:
    whole, put = made(how, 20), made(how, 20)
    train(whole, 7)
    assert rates.move(put, 7)
    assert [train(put, 1) for _ in range(12)] == pytest.approx([train(whole, 1) for _ in range(12)])


def test_one_that_follows_a_metric_or_its_last_rate_is_left_alone() -> None:
    for how in (
        lambda one, _: lr_scheduler.ReduceLROnPlateau(one),
        lambda one, _: lr_scheduler.MultiplicativeLR(one, lambda step: 0.9),
    ):
        assert not rates.move(made(how, 0), 7)


def _left(scheduler: Any, state: dict[str, Any]) -> bool:
    scheduler.load_state_dict(state)
    return rates._step(scheduler) == 30


@pytest.mark.parametrize(
    ("numbers", "ranks", "part"),
    [
        ([(240, 80)], 1 / 3, 1 / 3),
        ([(240, 79)], 1 / 3, 79 / 240),
        ([(80, 240)], 3, 3),
        ([(230, 75), (24, 8)], 1 / 3, 75 / 230),  # a warm-up of five steps
        ([(240, 300)], 1 / 3, None),  # for another reason
        ([(240, 230)], 1 / 3, None),
        ([(0, 80)], 1 / 3, None),
        ([(240, -80)], 1 / 3, None),
    ],
)
def test_what_a_script_gives_shows_whether_it_follows_the_ranks(
    numbers: list[tuple[float, float]], ranks: float, part: float | None
) -> None:
    found = rates.scaled(numbers, ranks)
    assert found == (None if part is None else pytest.approx(part))


def _fixed_parts(one: Any, _: int) -> Any:
    parts = [lr_scheduler.LinearLR(one), _cosine(one, 200)]
    return lr_scheduler.SequentialLR(one, parts, [5])


def _parts(one: Any, total: int) -> Any:
    parts = [lr_scheduler.LinearLR(one, 0.1, 1.0, 5), _cosine(one, total - 5)]
    return lr_scheduler.SequentialLR(one, parts, [5])


# Whether the script is told that it counts steps; not where its horizon does not follow the ranks.
LEFT: dict[str, tuple[Callable[[Any, int], Any], bool]] = {
    "CosineAnnealingWarmRestarts": (lr_scheduler.CosineAnnealingWarmRestarts, True),
    "LambdaLR": (_lambda, True),
    "MultiplicativeLR": (
        lambda one, total: lr_scheduler.MultiplicativeLR(one, lambda step: 1 - 1 / total),
        True,
    ),
    "SequentialLR": (_parts, True),
    "Chained": (lambda one, total: lr_scheduler.ChainedScheduler([_lambda(one, total)]), True),
    "steps of a length": (lambda one, _: lr_scheduler.StepLR(one, 10), False),
    "a length": (lambda one, _: _cosine(one, 200), False),
    "milestones": (lambda one, _: lr_scheduler.MultiStepLR(one, [10, 20]), False),
    "parts of a length": (_fixed_parts, False),
}


@pytest.mark.parametrize(("how", "is_told"), LEFT.values(), ids=LEFT)
@pytest.mark.parametrize("rank", [0, 1])
def test_who_cannot_be_moved_is_told_once_by_rank_0(
    on: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    how: Callable[[Any, int], Any],
    is_told: bool,
    rank: int,
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    on(1)
    before = made(how, 120)
    train(before, 30)
    state = before.state_dict()
    assert _left(made(how, 120), state), "on the same ranks there is nothing to say"
    on(3)
    for _ in range(2):  # a script may have two
        after = made(how, 40)
        assert _left(after, state)
    lines = capfd.readouterr().err.splitlines()
    said = f"bftrainer: {type(before).__name__} counts steps of 1 ranks"
    assert [line[: len(said)] for line in lines] == [said] * (is_told and rank == 0)
    state = after.state_dict()
    rates._say_once.cache_clear()
    assert _left(made(how, 40), state)
    assert capfd.readouterr().err == "", "it has been written on 3 ranks since"


def test_a_frameworks_or_a_part_of_a_whole_is_left(on: Callable[[int], int]) -> None:
    on(1)
    before = made(MADE["linear"], 120)
    train(before, 30)
    state = before.state_dict()
    on(3)
    for caller in ("accelerate.scheduler", "lightning.pytorch.trainer", "torch.optim.lr_scheduler"):
        after = made(MADE["linear"], 40)
        exec("after.load_state_dict(state)", {"__name__": caller, "after": after, "state": state})
        assert after.last_epoch == 30, caller
    stale = {**state, "last_epoch": 30, rates._NOTE: {**state[rates._NOTE], "step": 29}}
    assert _left(made(MADE["linear"], 40), stale), "written without us since then"


def test_a_state_can_be_read_without_us_and_is_no_pattern_before_it_begins(
    on: Callable[[int], int],
) -> None:
    on(1)
    scheduler = made(MADE["linear"], 120)
    assert rates._NOTE not in scheduler.state_dict()
    train(scheduler, 30)
    state = scheduler.state_dict()
    again = made(MADE["linear"], 120)
    vars(again).update(state)  # what torch does
    on(2)
    assert again.state_dict()[rates._NOTE]["ranks"] == 2


@pytest.mark.parametrize(("before", "last_epoch", "told"), [(1, 30, 1), (3, 30, 0), (1, -1, 0)])
def test_one_that_is_made_at_a_step_of_other_ranks_is_told(
    on: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    before: int,
    last_epoch: int,
    told: int,
) -> None:
    """As torchtune does: its place in the data may be one of samples, its rate is not."""
    memory = Memory.made()
    memory.past.ranks = before
    monkeypatch.setenv(VARIABLE, memory.path)
    on(3)
    optimizer = made(_lambda, 120).optimizer
    lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 120, last_epoch=last_epoch)
    assert capfd.readouterr().err.count("LambdaLR counts steps of 1 ranks") == told
