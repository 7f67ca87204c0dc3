"""The formulation to compare with is the paper's, and right: it reaches the same optima."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings

from bftrainer_slurm.planner.instance import read_instance
from bftrainer_slurm.planner.optimum import GAP, incumbents
from bftrainer_slurm.planner.problem import Problem, feasible, value
from scripts.planner_bench.instances import RECORDED
from scripts.planner_bench.nodelevel import solve
from tests.planner.exact import exact_counts
from tests.planner.problems import problems

LIMIT_S = 60.0

small = problems().filter(lambda one: len(one.pool) <= 10 and 1 <= len(one.trainers) <= 4)


def nodes_of(problem: Problem) -> tuple[frozenset[str], ...]:
    answer = solve(problem, LIMIT_S)
    assert answer is not None
    assert answer.optimal
    return answer.nodes


def reached(problem: Problem, nodes: tuple[frozenset[str], ...]) -> float:
    shares = [(len(its),) for its in nodes]
    assert feasible(problem, shares)
    return value(problem, shares)


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded instances in {RECORDED}")
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_it_and_the_product_reach_the_recorded_optimum(path: Path) -> None:
    problem, optimum = read_instance(path), json.loads(path.read_text())["optimum"]
    assert reached(problem, nodes_of(problem)) == pytest.approx(optimum, rel=1e-6)
    *_, found = incumbents(problem, LIMIT_S)
    assert found.optimal
    assert value(problem, found.shares) == pytest.approx(optimum, rel=GAP)


@settings(max_examples=30, deadline=None)
@given(small)
def test_equals_the_dynamic_programme_and_never_migrates_nor_shares_a_node(
    problem: Problem,
) -> None:
    nodes = nodes_of(problem)
    assert sum(map(len, nodes)) == len(frozenset().union(*nodes))
    for one, has in zip(problem.trainers, nodes, strict=True):
        assert has <= one.current or has >= one.current
    best = value(problem, exact_counts(problem))
    most = max((max(one.curve.values) for one in problem.trainers), default=0.0)
    slack = 2e-6 * problem.forward_time_s * most
    assert math.isclose(reached(problem, nodes), best, rel_tol=2e-6, abs_tol=slack)
