"""A run replays what it says, on the recorded data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.paper.replays import SUMMIT, execute_one, trainers_of_run
from experiments.paper.runs import Run, dedicated

pytestmark = pytest.mark.skipif(not SUMMIT.is_dir(), reason=f"no trace in {SUMMIT}")
SHORT = Run("hpo-1000", nodes=256, hours=2.0)


def test_trainers_wait_from_the_start() -> None:
    assert {trainer.submit_s for trainer in trainers_of_run(SHORT)} == {0.0}


def test_trainers_are_repeated() -> None:
    assert len(trainers_of_run(replace(SHORT, repeat=3))) == 3 * len(trainers_of_run(SHORT))


def test_a_run_says_what_it_reached_and_how_its_plans_went() -> None:
    result = execute_one(SHORT, "abc")
    assert result.outcome is not None
    assert result.samples == result.outcome.samples > 0
    assert result.plans["optimal"] > 0
    assert 0 < result.plan_median_s <= result.plan_p95_s <= result.plan_max_s


def test_dedicated_nodes_reach_more() -> None:
    assert execute_one(dedicated(SHORT), "abc").samples > execute_one(SHORT, "abc").samples


def test_trainers_that_run_out_would_make_every_method_look_the_same() -> None:
    with pytest.raises(ValueError, match="repeat them"):
        execute_one(Run("hpo-10", hours=24.0), "abc")
