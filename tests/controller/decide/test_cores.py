"""Parts of nodes without GPUs: what there is, what the plan gives out, and who makes way."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.decide.eligibility import eligibility
from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.decide.parts import Room, offered
from bftrainer_slurm.controller.decide.planning import problem_of
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.shared_nodes import shared_nodes
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    CORE,
    GPU,
    Demands,
    Element,
    ElementId,
    ElementState,
    Memory,
    Node,
    NodeState,
    Resources,
    WaitingJob,
)
from bftrainer_slurm.planner import bins
from bftrainer_slurm.planner.instance import document_of, parse
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Problem, units_of, value
from bftrainer_slurm.planner.reasons import reasons_of
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.planner.supply import Row
from tests.controller.decide.test_problem import known
from tests.controller.worlds import cluster, places, released, snapshot, state_of, view_of
from tests.controller.worlds import trainer as a_trainer
from tests.planner.exact import best_packed
from tests.planner.test_classes_optimum import slack

CORES, MEMORY_MB = 8, 8000
NAMES = ("n1", "n2", "n3")
PARTITIONS = frozenset({"main", "bftrainer"})
GPUS = frozenset({("gpu", 4), ("gpu:a100", 4)})


def node(name: str, cores: int, memory_mb: float, gpus: bool = False) -> Node:
    """A node of which jobs, trainers' elements too, have so much."""
    gres = GPUS if gpus else frozenset[tuple[str, int]]()
    has, used = Resources(MEMORY_MB, CORES, gres), Resources(memory_mb, cores)
    state = NodeState.BUSY if cores else NodeState.IDLE
    return Node(name, state, PARTITIONS, resources=has, used=used)


def trainer(
    array: int,
    cores: int,
    *nodes: str,
    more: int = 0,
    memory_mb: float = 0.0,
    gpus: int = 0,
    cores_of_gpu: int = 1,
) -> TrainerView:
    """A trainer of so many cores an element (0: whole nodes), or of GPUs with their cores."""
    states = [ElementState.RUNNING] * len(nodes) + [ElementState.HELD] * more
    has = {"gpus": gpus, "cores": 0 if gpus else cores}
    cpus = gpus * cores_of_gpu or cores or CORES
    elements = tuple(
        Element(ElementId(array, task), state, name, cpus=cpus, memory_mb=memory_mb, **has)
        for task, (state, name) in enumerate(zip(states, [*nodes, *[None] * more], strict=True))
    )
    asks = Resources(cpus=gpus * cores_of_gpu or cores, gres=GPUS if gpus else frozenset())
    demands = Demands(resources=asks, memory=Memory(memory_mb), **has)
    plain = replace(a_trainer(*elements, array=array), demands=demands)
    return view_of(plain, state_of(plain))


def seen(
    nodes: Sequence[Node], *views: TrainerView, jobs: Sequence[WaitingJob] = (), busy: str = ""
) -> ClusterView:
    """The nodes with these trainers on them; ordinary jobs are on the ``busy`` ones."""
    plain = snapshot(nodes, waiting=tuple(jobs), ordinary_nodes=frozenset(busy.split()))
    shared = shared_nodes(nodes, [view.trainer for view in views])
    of = replace(plain, share=True, shared=shared)
    return cluster(*views, of=of, forecast=BackfillForecast())


def problem_for(of: ClusterView) -> Problem:
    free = of.snapshot.in_holes - {one.node for view in of.views for one in view.places}
    eligible = eligibility(of.views, of.snapshot)
    return problem_of(of, places(" ".join(free)), find("throughput"), known, {}, eligible)


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    with Planner(time_limit_s=20.0) as planner:
        planner.warm_up()
        yield planner


def test_what_elements_have_is_free_for_the_plan_and_what_ordinary_jobs_have_is_not() -> None:
    mine = trainer(5, 2, "n1"), trainer(6, 0, "n2")
    nodes = node("n1", 5, 3000), node("n2", 8, 0), node("n3", 0, 0, gpus=True)
    found = seen(nodes, *mine, busy="n1").snapshot.shared
    assert [(one.unit, one.units, one.free) for one in found.values()] == [
        *((CORE, 8, 5), (CORE, 8, 8), (GPU, 4, 4)),
    ]
    assert (found["n1"].cpus, found["n1"].memory_mb) == (3, 5000)


def test_the_plan_gives_out_cores_with_memory_to_match_and_an_element_starts_beside_them() -> None:
    """Ordinary jobs have three cores and most of the memory of n1."""
    mine = trainer(5, 1, "n1", more=1, memory_mb=1000), trainer(6, 2, "n2", more=2, memory_mb=2000)
    full, roomy = node("n1", 4, 6000), node("n2", 2, 2000)
    of = seen((full, roomy, node("n3", 0, 0)), *mine, busy="n1")
    assert offered(of, mine, frozenset({"n3"}), ()) == {"n1": 3, "n2": 8, "n3": 8}
    room = Room(of, ())
    assert set(room.places(mine[1], NAMES)) == {"n1", "n3"}
    other = trainer(7, 1, more=3, memory_mb=1000)
    assert set(room.places(other, NAMES)) == {"n2", "n3"}  # the memory of n1 is gone


def test_an_element_on_its_way_to_a_node_makes_no_room_there_for_another_trainer() -> None:
    """Else the plan would give the node to one, then to the other, for ever."""
    late = trainer(6, 2, more=1, memory_mb=500).trainer
    late = replace(late, elements=(replace(late.elements[0], state=ElementState.PENDING),))
    coming = view_of(late, TrainerState({0: released("n1")}))
    other = trainer(5, 2, "n2", more=1, memory_mb=4000)
    of = seen((node("n1", 2, 7500), node("n2", 2, 4000)), other, coming, busy="n1")
    assert coming.placed.keys() == {ElementId(6, 0)}
    assert eligibility(of.views, of.snapshot).barred[5] == {"n1"}
    assert offered(of, (other,), frozenset(), ()) == {"n2": 4}
    assert offered(of, of.views, frozenset(), ())["n1"] == 2


def test_an_element_leaves_for_cores_that_an_ordinary_job_needs_and_no_more_than_needed() -> None:
    mine = trainer(5, 1, "n1"), trainer(6, 2, "n1")
    nodes = node("n1", 6, 0), node("n2", 8, 0)  # ordinary jobs: three, and all
    for cores, gone in ((2, set()), (3, {5}), (4, {6}), (5, {5, 6}), (6, None)):
        job = WaitingJob(1, "main", 1, cpus=cores)
        found = headroom(seen(nodes, *mine, jobs=[job], busy="n1 n2"))
        assert {one.array for one in found.elements} == (gone or set())
        assert found.units == ({"n1": cores} if gone is not None else {})


def test_a_job_of_gpus_does_not_go_to_cores_and_one_of_whole_nodes_needs_all_of_one() -> None:
    mine = trainer(5, 2, "n1"), trainer(6, 0, "n2")
    nodes = node("n1", 2, 0), node("n2", 8, 0)
    assert not headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 1, gpus=1)])).elements
    found = headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 2)]))
    assert {one.array for one in found.elements} == {5, 6}
    assert found.units == {"n1": 8, "n2": 8}


def test_trainers_of_cores_and_of_gpus_keep_to_their_nodes_and_are_counted_apart(
    planner: Planner,
) -> None:
    mine = trainer(5, 2, more=2), trainer(6, 0, more=2, gpus=2), trainer(7, 0, more=1)
    nodes = node("n1", 0, 0), node("n2", 3, 0), node("n3", 0, 0, gpus=True)
    problem = problem_for(seen(nodes, *mine, busy="n2"))
    plan = planner.plan(problem)
    assert plan.assignment["5"] <= {"n1", "n2"}
    assert plan.assignment["6"] == {"n3"}
    assert units_of(problem, plan).keys() == {CORE, GPU}
    assert units_of(problem, plan)[GPU] == (4, 2)
    assert units_of(problem, plan)[CORE][0] == 13


def test_who_wants_cores_is_told_of_cores_also_where_all_nodes_have_gpus(planner: Planner) -> None:
    problem = problem_for(seen([node("n1", 0, 0, gpus=True)], trainer(5, 2, more=2)))
    again = parse(json.dumps(document_of(problem)).encode())
    why = reasons_of(again, planner.plan(again))["5"]
    assert (why.cores, why.gpus, why.usable) == (2, 0, 0)


def test_each_size_of_elements_has_a_row_however_many_cores_nodes_have(planner: Planner) -> None:
    mine = trainer(5, 2, "n1", more=1), trainer(6, 4, more=2)
    problem = problem_for(seen([node("n1", 5, 0), node("n2", 0, 0)], *mine, busy="n1"))
    new = [row for row in problem.rows() if not (row.full or row.frees)]
    assert new == [Row(0, 2, 6, 2), Row(0, 4, 3, 1)]
    assert units_of(problem, planner.plan(problem)) == {CORE: (13, 8)}


@settings(max_examples=30, deadline=None)
@given(
    used=st.tuples(*[st.integers(0, CORES)] * 3),
    sizes=st.lists(st.sampled_from([0, 1, 2, 4, 3]), min_size=1, max_size=3),
)
def test_the_plan_is_the_best_of_all_packings_and_what_the_milp_of_nodes_finds(
    planner: Planner, used: tuple[int, ...], sizes: list[int]
) -> None:
    nodes = [node(name, cores, 0) for name, cores in zip(NAMES, used, strict=True)]
    views = [trainer(array, size, more=3) for array, size in enumerate(sizes, 5)]
    busy = " ".join(one.name for one in nodes if one.used and one.used.cpus)
    problem = problem_for(seen(nodes, *views, busy=busy))
    assume(problem.pool)
    plan, best = planner.plan(problem), best_packed(problem)
    assert plan.status == "optimal"
    assert math.isclose(plan.objective, best, rel_tol=1e-6, abs_tol=slack(problem))
    found, proven = bins.solve(problem, 0.0, 60.0)
    assert proven and found is not None
    assert math.isclose(value(problem, found.shares), best, rel_tol=1e-6, abs_tol=slack(problem))
