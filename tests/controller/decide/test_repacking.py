"""Parts that fit on a shared node by their cores, but not by their memory beside other trainers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from bftrainer_slurm.controller.decide.eligibility import eligibility
from bftrainer_slurm.controller.decide.parts import Room
from bftrainer_slurm.controller.decide.planning import Planning, problem_of
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import Resources
from bftrainer_slurm.planner.objectives import find
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


def plan(planning: Planning, of: ClusterView) -> tuple[dict[str, set[str]], set[int]]:
    """Return the nodes of each trainer, and the trainers that fit on none."""
    free = of.snapshot.in_holes - {one.node for view in of.views for one in view.places}
    eligible = eligibility(of.views, of.snapshot)
    free_places = places(" ".join(free))
    build = partial(problem_of, of, free_places, find("throughput"), known, {}, eligible)
    assert planning.answer(build, of.now_s) is not None
    bars = planning.repack(of.views, Room(of, ()))
    assert planning.standing is not None
    found = {key: set(nodes) for key, nodes in planning.standing.plan.assignment.items()}
    return found, {bar.array for bar in bars if bar.array is not None}


@pytest.mark.parametrize(("full", "roomy"), [("n1", "n2"), ("n2", "n1")])
def test_a_trainer_goes_where_its_memory_is_free_beside_the_others(
    planning: Planning, full: str, roomy: str
) -> None:
    there, little = trainer(5, 2, full, memory_mb=6000), trainer(7, 1, full, memory_mb=100)
    new = trainer(6, 2, more=1, memory_mb=5000)
    of = seen((node(full, 3, 6100), node(roomy, 0, 0)), there, little, new)
    assert plan(planning, of) == ({"5": {full}, "6": {roomy}, "7": {full}}, set())
    started = trainer(6, 2, roomy, memory_mb=5000)
    of = seen((node(full, 3, 6100), node(roomy, 2, 5000)), there, little, started)
    assert plan(planning, of) == ({"5": {full}, "6": {roomy}, "7": {full}}, set())


def test_processors_count_as_memory_does(planning: Planning) -> None:
    there = trainer(5, 0, "n1", gpus=1, cores_of_gpu=6)
    little = trainer(7, 0, "n1", gpus=1)
    new = trainer(6, 0, more=1, gpus=1, cores_of_gpu=3)
    half = replace(node("n1", 7, 0, gpus=True), used=Resources(0, 7, frozenset({("gpu", 2)})))
    of = seen((half, node("n2", 0, 0, gpus=True)), there, little, new)
    assert plan(planning, of) == ({"5": {"n1"}, "6": {"n2"}, "7": {"n1"}}, set())


def test_who_fits_on_no_node_keeps_its_part_of_the_plan_and_waits(planning: Planning) -> None:
    there, little = trainer(5, 2, "n1", memory_mb=6000), trainer(7, 1, "n1", memory_mb=100)
    new = trainer(6, 2, more=1, memory_mb=5000)
    of = seen([node("n1", 3, 6100)], there, little, new)
    assert plan(planning, of) == ({"5": {"n1"}, "6": {"n1"}, "7": {"n1"}}, {6})
    of = seen([node("n1", 1, 100)], little, new)
    assert plan(planning, of) == ({"6": {"n1"}, "7": {"n1"}}, set())


def test_a_part_does_not_go_where_the_plan_leaves_too_few_units(planning: Planning) -> None:
    there, little = trainer(5, 2, "n1", memory_mb=6000), trainer(7, 1, "n1", memory_mb=100)
    beside = trainer(8, 7, "n2", memory_mb=100)
    new = trainer(6, 2, more=1, memory_mb=5000)
    of = seen((node("n1", 3, 6100), node("n2", 7, 100)), there, little, beside, new)
    found, waiting = plan(planning, of)
    assert (found["6"], waiting) == ({"n1"}, {6})


def test_a_part_whose_cores_are_still_in_use_waits_for_them(planning: Planning) -> None:
    """Their memory becomes free with them: 5 leaves n1, where 6 goes in the place of 5."""
    leaving, little = trainer(5, 8, "n1", memory_mb=8000), trainer(7, 1, "n2", memory_mb=100)
    of = seen((node("n1", 8, 8000), node("n2", 1, 100)), leaving, little)
    assert plan(planning, of)[0] == {"5": {"n1"}, "7": {"n2"}}
    standing = planning.standing
    assert standing is not None
    of_six = {"5": frozenset[str](), "6": frozenset({"n1"}), "7": frozenset({"n2"})}
    six = replace(standing.problem.trainers[1], key="6", current=frozenset())
    problem = replace(standing.problem, trainers=(*standing.problem.trainers, six))
    planning.standing = replace(
        standing, plan=replace(standing.plan, assignment=of_six), problem=problem
    )
    views = (leaving, trainer(6, 1, more=1, memory_mb=5000), little)
    assert planning.repack(views, Room(seen(of.snapshot.nodes, *views), ())) == ()
    assert planning.standing.plan.assignment == of_six


def test_parts_that_start_together_each_find_room(planning: Planning) -> None:
    """By units both fit on n1, and neither is there when the plan is made."""
    first, second = trainer(5, 2, more=1, memory_mb=6000), trainer(6, 2, more=1, memory_mb=5000)
    little = trainer(7, 1, "n1", memory_mb=100)
    of = seen((node("n1", 1, 100), node("n2", 7, 0)), first, second, little, busy="n2")
    assert plan(planning, of)[0]["5"] == plan(planning, of)[0]["6"] == {"n1"}
    first = trainer(5, 2, "n1", memory_mb=6000)
    of = seen((node("n1", 3, 6100), node("n2", 0, 0)), first, second, little)
    assert plan(planning, of) == ({"5": {"n1"}, "6": {"n2"}, "7": {"n1"}}, set())
