"""Gradients that come in another order on each rank: they are summed one by one, in the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from bftrainer_slurm.elastic.inprocess.gradients import Collected  # noqa: E402

PARAMETERS = [torch.zeros(2), torch.zeros(1, 3), torch.zeros(1)]
PLACES = {one: place for place, one in enumerate(PARAMETERS)}


@dataclass
class Bucket:
    """One of DDP's, with gradients that are their parameters' places."""

    places: tuple[int, ...]

    def __post_init__(self) -> None:
        parts = [torch.full((PARAMETERS[one].numel(),), float(one)) for one in self.places]
        self._buffer = torch.cat(parts)

    def buffer(self) -> Any:
        return self._buffer

    def parameters(self) -> list[Any]:
        return [PARAMETERS[place] for place in self.places]


def collected(*buckets: Bucket) -> tuple[Collected, list[Any]]:
    made = Collected(PLACES)
    return made, [made.add(bucket) for bucket in buckets]  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [((0, 1, 2),), ((2, 0), (1,)), ((1,), (2,), (0,))])
def test_whatever_the_buckets_the_order_is_the_models(order: tuple[tuple[int, ...], ...]) -> None:
    made, _ = collected(*map(Bucket, order))
    assert [part.tolist() for part in made.gradients()] == [[0.0, 0.0], [1.0, 1.0, 1.0], [2.0]]


def test_a_sum_is_where_ddp_looks_for_it() -> None:
    made, (first, second) = collected(Bucket((2, 0)), Bucket((1,)))
    for part in made.gradients():
        part.add_(10.0)
    assert not first.done()
    made.give(good=True)
    assert first.wait().tolist() == [12.0, 10.0, 10.0]
    assert second.wait().tolist() == [11.0, 11.0, 11.0]


def test_after_a_failure_ddp_goes_on_with_zeros() -> None:
    made, (only,) = collected(Bucket((0, 1, 2)))
    made.give(good=False)
    assert only.wait().tolist() == [0.0] * 6


def test_the_next_pass_begins_without_what_a_broken_one_has_left() -> None:
    made, _ = collected(Bucket((0, 1)))
    made.clear()
    made.add(Bucket((2,)))  # type: ignore[arg-type]
    assert [part.tolist() for part in made.gradients()] == [[2.0]]
