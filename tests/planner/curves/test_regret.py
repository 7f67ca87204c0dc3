"""What plans lose because curves are not known; scripts/run bench-curves measures it in full."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.planner.solver import Planner
from experiments.curves.regret import (
    Controller,
    Method,
    Outcome,
    Stretch,
    exploring,
    fitted,
    known,
    made_curves,
    prior_only,
    run,
    steady,
    wandering,
)

CURVES = made_curves(8, seed=2)
WANDERING, STEADY = wandering(30, seed=2), steady(20, seed=2)


def late_regret(planner: Planner, method: Method, stretches: Sequence[Stretch]) -> float:
    """What the last ten plans miss, as a share of what is possible."""
    late: list[Outcome] = run(planner.plan, method, CURVES, stretches, seed=2)[-10:]
    return 1 - sum(one.reached for one in late) / sum(one.possible for one in late)


def test_known_curves_have_no_regret(planner: Planner) -> None:
    assert abs(late_regret(planner, known, WANDERING)) < 1e-6


def test_measuring_brings_regret_under_three_percent(planner: Planner) -> None:
    assert late_regret(planner, exploring, WANDERING) < 0.03
    assert late_regret(planner, prior_only, WANDERING) > 0.03


def test_so_does_learning_from_reports_as_the_controller_does(planner: Planner) -> None:
    assert late_regret(planner, Controller(), WANDERING) < 0.03


def test_on_a_steady_pool_only_exploring_learns(planner: Planner) -> None:
    regret = late_regret(planner, fitted, STEADY)
    assert late_regret(planner, exploring, STEADY) < regret
    assert late_regret(planner, Controller(), STEADY) < regret
