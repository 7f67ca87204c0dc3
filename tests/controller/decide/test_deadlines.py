"""A trainer with a deadline in the planning problem: how much its nodes count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.eligibility import Eligibility
from bftrainer_slurm.controller.decide.planning import problem_of, same_question
from bftrainer_slurm.controller.state.profiles import Estimate, RescaleCosts
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.planner.problem import Problem
from tests.controller.decide.test_problem import HELD
from tests.controller.worlds import NOW_S, cluster, view

PLAIN = [10.0] * 4  # what each node brings without a deadline


def problem(
    samples: float | None, measured: bool = True, share: float = 1.0, left_s: float = 50.0
) -> Problem:
    """A trainer of 10 samples/s a node, on up to four nodes, that needs 1,000 in 50 s."""

    class Known:
        def costs(self, _: TrainerView, now_s: float) -> RescaleCosts:
            return RescaleCosts(1.0, 1.0, start_s=1.0)

        def estimates(self, views: Sequence[TrainerView], now_s: float) -> list[Estimate]:
            curve = ThroughputCurve((0, 4), (0.0, 40.0))
            cost = self.costs(views[0], now_s)
            return [Estimate(curve, cost, samples=samples, measured=measured) for _ in views]

    known: Any = Known()
    plain = view(*[HELD] * 4)
    record = plain.trainer.record
    spec = replace(record.spec, samples=1000.0, by_s=NOW_S + left_s)
    record = replace(record, spec=spec, min_nodes=1, max_nodes=4)
    due = replace(plain, trainer=replace(plain.trainer, record=record))
    free = dict.fromkeys(("n1", "n2", "n3", "n4"), 1)
    asked = cluster(due), free, find("throughput"), known, {}, Eligibility()
    return problem_of(*asked, deadline_share=share)


def gains(
    samples: float | None, measured: bool = True, share: float = 1.0, left_s: float = 50.0
) -> list[float]:
    """What each node brings to this trainer."""
    curve = problem(samples, measured, share, left_s).trainers[0].curve
    return [curve.at(size + 1) - curve.at(size) for size in range(4)]


def test_the_nodes_that_it_needs_count_more() -> None:
    assert gains(samples=0.0) == pytest.approx([30.0, 30.0, 30.0, 10.0])  # 20 samples/s, rounded up


def test_a_new_one_has_its_least_nodes_first_so_that_it_is_measured() -> None:
    assert gains(samples=None, measured=False) == pytest.approx([30.0, 10.0, 10.0, 10.0])


@pytest.mark.parametrize("samples", [None, 1000.0])
def test_without_samples_and_with_all_of_them_it_counts_as_usual(samples: float | None) -> None:
    assert gains(samples) == pytest.approx(PLAIN)


def test_beyond_the_sites_share_it_counts_as_usual() -> None:
    assert gains(samples=0.0, share=0.5) == pytest.approx(PLAIN)


def test_a_problem_says_what_a_deadline_needs_and_what_the_sites_share_has_left() -> None:
    (need,) = problem(samples=0.0).needs.values()
    assert need == Need(3)
    (need,) = problem(samples=0.0, share=0.5).needs.values()
    assert need == Need(3, left=2)
    assert not problem(samples=1000.0).needs


def test_a_deadline_that_all_its_nodes_just_meet_counts() -> None:
    assert gains(samples=0.0, left_s=25.2) == pytest.approx([30.0] * 4)  # 39.7 of 40 samples/s
    assert gains(samples=0.0, left_s=24.9) == pytest.approx(PLAIN)


def test_what_a_deadline_needs_is_another_question() -> None:
    before, now = problem(samples=0.0, share=0.25), problem(samples=0.0, share=0.5)
    assert not same_question(now, before)  # it is refused in both, and its curve is the same
