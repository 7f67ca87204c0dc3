"""What a run of the node-level model counts as, and when the two models contradict each other."""

from __future__ import annotations

import pytest

from bftrainer_slurm.planner.problem import Plan
from scripts.planner_bench.instances import made
from scripts.planner_bench.measure import Run, agree, node_level_planner, run_of

BEST = Plan({}, 10.0, 0.1, "optimal")


@pytest.mark.parametrize(
    ("plan", "run"),
    [
        (Plan({}, 1.0, 2.0, "optimal"), Run(2.0, "optimal")),
        (Plan({}, 1.0, 5.5, "optimal"), Run(5.0, "limit")),
        (Plan({}, 1.0, 5.1, "feasible"), Run(5.0, "limit")),
        (Plan({}, 1.0, 6.2, "greedy", "the solver did not answer in time"), Run(5.0, "limit")),
        (Plan({}, 1.0, 0.5, "greedy", "the solver died"), Run(0.5, "the solver died")),
    ],
    ids=["proven", "proven too late", "cut off", "hung", "crashed"],
)
def test_what_is_not_proven_within_the_limit_counts_as_the_limit(plan: Plan, run: Run) -> None:
    assert run_of(plan, 5.0) == run


def test_a_run_that_is_cut_off_has_taken_the_limit() -> None:
    with node_level_planner(0.01) as planner:
        planner.warm_up()
        assert run_of(planner.plan(made(10, 64, 0)), 0.01) == Run(0.01, "limit")


@pytest.mark.parametrize(
    ("status", "objective", "fits"),
    [
        ("optimal", 10.0, True),
        ("optimal", 9.0, False),
        ("limit", 9.0, True),
        ("limit", 11.0, False),
        ("the solver died", 11.0, True),
    ],
)
def test_a_proven_optimum_is_the_same_and_a_cut_off_run_no_better(
    status: str, objective: float, fits: bool
) -> None:
    assert agree(Run(1.0, status), Plan({}, objective, 1.0, "feasible"), BEST) is fits
