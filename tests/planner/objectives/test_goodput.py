"""Goodput: samples count less in a batch that is large beside the noise of its gradient."""

from __future__ import annotations

import math

import pytest

from bftrainer_slurm.planner.objectives import Facts, find
from bftrainer_slurm.planner.objectives.goodput import batch_efficiency
from tests.planner.objectives.made import STEEP


@pytest.mark.parametrize(
    ("noise", "nodes", "counts"),
    [(62.5, 1, 1.0), (7.0, 9, 0.5), (1.0, 3, 0.5), (0.0, 4, 0.25), (math.inf, 64, 1.0)],
)
def test_what_a_sample_counts(noise: float, nodes: int, counts: float) -> None:
    assert batch_efficiency(noise, nodes) == pytest.approx(counts)


def test_it_is_throughput_times_what_a_sample_counts() -> None:
    (curve,) = find("goodput")([Facts(STEEP, 1, 8, weight=2.0, noise=7.0)])
    assert [curve.at(size) for size in (1, 4, 8)] == pytest.approx(
        [2 * 100, 2 * 400 * 8 / 11, 2 * 800 * 8 / 15]
    )


def test_where_more_nodes_make_no_larger_batch_it_is_throughput() -> None:
    one = [Facts(STEEP, 1, 8)]
    assert find("goodput")(one) == find("throughput")(one)
