"""Parts that fit on a shared node by their cores, but not by their memory beside other trainers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from bftrainer_slurm.controller.decide.eligibility import eligibility
from bftrainer_slurm.controller.decide.planning import Planning, problem_of
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import Resources
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Plan
from bftrainer_slurm.planner.solver import Planner
from tests.controller.decide.test_cores import node, seen, trainer
from tests.controller.decide.test_problem import known
from tests.controller.worlds import places


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    with Planner(time_limit_s=20.0) as planner:
        planner.warm_up()
        yield planner


@pytest.fixture
def planning(planner: Planner) -> Planning:
    return Planning(planner, History(":memory:"))


def plan(planning: Planning, of: ClusterView) -> Plan:
    free = of.snapshot.in_holes - {one.node for view in of.views for one in view.places}
    eligible = eligibility(of.views, of.snapshot)
    free_places = places(" ".join(free))
    build = partial(problem_of, of, free_places, find("throughput"), known, {}, eligible)
    standing = planning.answer(build, of)
    assert standing is not None
    return standing.plan


@pytest.mark.parametrize(("full", "roomy"), [("n1", "n2"), ("n2", "n1")])
def test_a_trainer_goes_where_its_memory_is_free_beside_the_others(
    planning: Planning, full: str, roomy: str
) -> None:
    there, little = trainer(5, 2, full, memory_mb=6000), trainer(7, 1, full, memory_mb=100)
    new = trainer(6, 2, more=1, memory_mb=5000)
    of = seen((node(full, 3, 6100), node(roomy, 0, 0)), there, little, new)
    assert plan(planning, of).assignment == {"5": {full}, "6": {roomy}, "7": {full}}


def test_who_fits_nowhere_beside_the_others_leaves_the_cores_to_who_does(
    planning: Planning,
) -> None:
    there = trainer(5, 5, "n1", memory_mb=5000)
    large = trainer(6, 2, more=1, memory_mb=4000)
    small = trainer(7, 1, more=1, memory_mb=1000)
    of = seen([node("n1", 5, 5000)], there, large, small)
    assert plan(planning, of).assignment == {"5": {"n1"}, "6": set(), "7": {"n1"}}
    (bar,) = planning.crowding.bars(of)
    assert (bar.array, bar.nodes) == (6, {"n1"})
    assert "too little memory" in bar.why


def test_a_trainer_may_start_there_again_when_the_others_are_gone(planning: Planning) -> None:
    there = trainer(5, 2, "n1", memory_mb=6000)
    new = trainer(6, 2, more=1, memory_mb=5000)
    plan(planning, seen([node("n1", 2, 6000)], there, new))
    of = seen([node("n1", 0, 0)], new)
    assert plan(planning, of).assignment == {"6": {"n1"}}
    assert planning.crowding.bars(of) == ()


def test_who_starts_first_stays_and_the_other_goes_elsewhere(planning: Planning) -> None:
    """Neither is there when the plan is made, and it puts both on the only free node."""
    first, second = trainer(5, 2, more=1, memory_mb=6000), trainer(6, 2, more=1, memory_mb=5000)
    little, taken = trainer(7, 1, "n1", memory_mb=500), node("n2", 8, 0)
    of = seen((node("n1", 1, 500), taken), first, second, little, busy="n2")
    assert plan(planning, of).assignment == {key: {"n1"} for key in "567"}
    first = trainer(5, 2, "n1", memory_mb=6000)
    of = seen((node("n1", 3, 6500), taken), first, second, little, busy="n2")
    assert plan(planning, of).assignment == {"5": {"n1"}, "6": set(), "7": {"n1"}}
    of = seen((node("n1", 3, 6500), node("n2", 0, 0)), first, second, little)
    assert plan(planning, of).assignment == {"5": {"n1"}, "6": {"n2"}, "7": {"n1"}}


def test_a_part_fits_beside_an_element_that_the_plan_takes_away(planning: Planning) -> None:
    """The trainer there has a core more than it may have, so it leaves one of its two nodes."""
    leaving = trainer(5, 8, "n1", memory_mb=8000)
    better = trainer(6, 1, "n2", more=7, memory_mb=1000)
    of = seen((node("n1", 8, 8000), node("n2", 1, 1000)), leaving, better)
    found = plan(planning, of).assignment
    assert "n1" not in found["5"] & found["6"]
    assert found["5"] | found["6"] == {"n1", "n2"}


def test_processors_count_as_memory_does(planning: Planning) -> None:
    there = trainer(5, 0, "n1", gpus=1, cores_of_gpu=6)
    little = trainer(7, 0, "n1", gpus=1)
    new = trainer(6, 0, more=1, gpus=1, cores_of_gpu=3)
    nodes = [node("n1", 7, 0, gpus=True), node("n2", 0, 0, gpus=True)]
    nodes = [replace(nodes[0], used=Resources(0, 7, frozenset({("gpu", 2)}))), nodes[1]]
    of = seen(nodes, there, little, new)
    assert plan(planning, of).assignment == {"5": {"n1"}, "6": {"n2"}, "7": {"n1"}}
