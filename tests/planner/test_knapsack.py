"""The best counts where one row alone is scarce; where they are too many, the solver takes over."""

from __future__ import annotations

import pytest

from bftrainer_slurm.planner import knapsack, optimum
from bftrainer_slurm.planner.packing import Found
from bftrainer_slurm.planner.problem import Problem, value
from scripts.planner_bench.instances import made_in_parts
from tests.planner.test_parts_optimum import of_many_sizes

SCARCE = made_in_parts(40, 300, 1)


def found(problem: Problem) -> Found:
    return list(optimum.incumbents(problem, 60.0))[-1]


@pytest.fixture(scope="module")
def best() -> Found:
    return found(SCARCE)


def test_they_are_the_same_a_few_segments_at_a_time(
    monkeypatch: pytest.MonkeyPatch, best: Found
) -> None:
    monkeypatch.setattr(knapsack, "_AT_ONCE", 1)
    assert found(SCARCE).shares == best.shares


@pytest.mark.parametrize("limit", ["_MOST_CELLS", "_MOST_CHOICES", "_MOST_COUNTS"])
def test_where_they_are_too_many_the_solver_finds_as_good_ones(
    monkeypatch: pytest.MonkeyPatch, best: Found, limit: str
) -> None:
    monkeypatch.setattr(knapsack, limit, 1)
    other = found(SCARCE)
    worth = [value(SCARCE, one.shares) for one in (other, best)]
    assert best.optimal
    assert worth[0] == pytest.approx(worth[1], rel=1e-3)


def test_they_are_not_looked_for_where_no_row_is_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knapsack, "_best_counts", None)
    assert found(of_many_sizes(20, 200, 128, 1)).optimal


def test_a_plan_of_many_trainers_is_proven() -> None:
    """It has more cells than 100 million, and a second of a processor is enough."""
    assert found(made_in_parts(700, 8000, 100)).optimal
