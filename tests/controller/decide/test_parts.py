"""Parts of shared nodes: what the plan gives out, what an element finds there, and who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from bftrainer_slurm.controller.decide.actions import Grow
from bftrainer_slurm.controller.decide.available import free_units, growable
from bftrainer_slurm.controller.decide.eligibility import eligibility
from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.decide.planning import Planning, offered, problem_of
from bftrainer_slurm.controller.decide.reconcile import Room, moves_towards, without_room
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.shared_nodes import shared_nodes
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Demands,
    Element,
    ElementId,
    ElementState,
    Memory,
    Node,
    NodeState,
    Reservation,
    Resources,
    WaitingJob,
)
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.planner.problem import Plan, gpus_of
from bftrainer_slurm.planner.solver import Planner
from tests.controller.decide.test_problem import known
from tests.controller.worlds import cluster, named, released, snapshot, state_of, view_of
from tests.controller.worlds import trainer as a_trainer

GPUS, CPUS, MEMORY_MB = 8, 16, 8000
NAMES = ("n1", "n2", "n3")
PARTITIONS = frozenset({"main", "bftrainer"})


def gres(gpus: int) -> frozenset[tuple[str, int]]:
    return frozenset({("gpu", gpus), ("gpu:a100", gpus)}) if gpus else frozenset()


def node(name: str, gpus: int, memory_mb: float, cpus: int | None = None, has: int = GPUS) -> Node:
    """A node that ``has`` GPUs; jobs, trainers' elements too, have so much of it."""
    cpus = 2 * gpus if cpus is None else cpus
    every, used = Resources(MEMORY_MB, CPUS, gres(has)), Resources(memory_mb, cpus, gres(gpus))
    state = NodeState.BUSY if gpus or cpus else NodeState.IDLE
    return Node(name, state, PARTITIONS, resources=every, used=used)


def trainer(
    array: int, gpus: int, *nodes: str, more: int = 0, memory_mb: float = 0.0, cpus: int = 0
) -> TrainerView:
    """A trainer of so many GPUs an element, 0 for whole nodes; two processors a GPU by default."""
    states = [ElementState.RUNNING] * len(nodes) + [ElementState.HELD] * more
    cpus = cpus or 2 * gpus or CPUS
    elements = tuple(
        Element(ElementId(array, task), state, name, cpus=cpus, memory_mb=memory_mb, gpus=gpus)
        for task, (state, name) in enumerate(zip(states, [*nodes, *[None] * more], strict=True))
    )
    asks = Resources(cpus=cpus if gpus else 0, gres=gres(gpus))
    demands = Demands(resources=asks, memory=Memory(memory_mb), gpus=gpus)
    plain = replace(a_trainer(*elements, array=array), demands=demands)
    return view_of(plain, state_of(plain))


def seen(
    nodes: Sequence[Node], *views: TrainerView, jobs: Sequence[WaitingJob] = (), busy: str = ""
) -> ClusterView:
    """The nodes with these trainers on them; ordinary jobs are on the ``busy`` ones."""
    plain = snapshot(nodes, waiting=tuple(jobs), ordinary_nodes=frozenset(busy.split()))
    shared = shared_nodes(nodes, [view.trainer for view in views])
    of = replace(plain, shared=shared)
    return cluster(*views, of=of, forecast=BackfillForecast())


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    with Planner(time_limit_s=20.0) as planner:
        planner.warm_up()
        yield planner


@pytest.fixture
def planning(planner: Planner) -> Planning:
    return Planning(planner, History(":memory:"))


def free(of: ClusterView) -> dict[str, int]:
    return growable(free_units(of), of, Settings())


def plan(planning: Planning, of: ClusterView) -> tuple[dict[str, set[str]], set[int]]:
    """Return the nodes of each trainer, and the trainers that find no room on theirs."""
    eligible = eligibility(of.views, of.snapshot)
    build = partial(problem_of, of, free(of), find("throughput"), known, {}, eligible)
    standing = planning.answer(build, of.now_s)
    assert standing is not None
    bars = without_room(of.views, standing.plan, Room(of, free(of)))
    found = {key: set(nodes) for key, nodes in standing.plan.assignment.items()}
    return found, {bar.array for bar in bars if bar.array is not None}


def test_the_plan_gives_out_gpus_with_memory_to_match_and_an_element_starts_beside_them() -> None:
    """Ordinary jobs have three GPUs and most of the memory of n1."""
    mine = trainer(5, 1, "n1", more=1, memory_mb=1000), trainer(6, 2, "n2", more=2, memory_mb=2000)
    full, roomy = node("n1", 4, 6000), node("n2", 2, 2000)
    of = seen((full, roomy, node("n3", 0, 0)), *mine, busy="n1")
    assert offered(of, mine, free(of)) == {"n1": 3, "n2": 8, "n3": 8}
    room = Room(of, free(of))
    assert room.take(mine[1], NAMES, mine[1].spare) == {"n1", "n3"}
    other = trainer(7, 1, more=3, memory_mb=1000)
    assert room.take(other, NAMES, other.spare) == {"n2", "n3"}  # the memory of n1 is gone


def test_an_element_on_its_way_to_a_node_makes_no_room_there_for_another_trainer() -> None:
    """Else the plan would give the node to one, then to the other, for ever."""
    late = trainer(6, 2, more=1, memory_mb=500).trainer
    late = replace(late, elements=(replace(late.elements[0], state=ElementState.PENDING),))
    coming = view_of(late, TrainerState({0: released("n1")}))
    other = trainer(5, 2, "n2", more=1, memory_mb=4000)
    of = seen((node("n1", 2, 7500), node("n2", 2, 4000)), other, coming, busy="n1")
    assert coming.placed.keys() == {ElementId(6, 0)}
    assert eligibility(of.views, of.snapshot).barred[5] == {"n1"}
    assert offered(of, (other,), free(of)) == {"n2": 4}
    assert offered(of, of.views, free(of))["n1"] == 2


def test_who_finds_too_little_memory_beside_others_keeps_its_part_of_the_plan_and_waits(
    planning: Planning,
) -> None:
    there, little = trainer(5, 2, "n1", memory_mb=6000), trainer(7, 1, "n1", memory_mb=100)
    new = trainer(6, 2, more=1, memory_mb=5000)
    of = seen([node("n1", 3, 6100)], there, little, new)
    assert plan(planning, of) == ({"5": {"n1"}, "6": {"n1"}, "7": {"n1"}}, {6})
    of = seen([node("n1", 1, 100)], little, new)
    assert plan(planning, of) == ({"6": {"n1"}, "7": {"n1"}}, set())


def test_processors_count_as_memory_does(planning: Planning) -> None:
    there, little = trainer(5, 1, "n1", cpus=12), trainer(7, 1, "n1", cpus=1)
    new = trainer(6, 1, more=1, cpus=6)
    of = seen([node("n1", 2, 0, cpus=13)], there, little, new)
    assert plan(planning, of) == ({"5": {"n1"}, "6": {"n1"}, "7": {"n1"}}, {6})


def test_whichever_element_a_limit_sends_to_a_node_no_gpu_of_it_is_given_twice() -> None:
    """One element of a trainer was changed to three GPUs; n2 is reserved, so it comes last."""
    first, other = trainer(5, 1, more=3), trainer(6, 2, more=1)
    *small, last = first.trainer.elements
    changed = replace(first.trainer, elements=(*small, replace(last, gpus=3)))
    mine = view_of(changed, state_of(changed)), other
    of = seen([node(name, 0, 0, has=4) for name in NAMES], *mine)
    reserved = Reservation("r", of.now_s + 1800, of.now_s + 3600, ("n2",))
    of = replace(of, snapshot=replace(of.snapshot, reservations=(reserved,)))
    wanted = Plan({"5": named("n1 n2 n3"), "6": named("n2")}, 0.0, 0.0, "optimal")
    room = Room(of, free(of))
    grows = [
        move
        for view in mine
        for move in moves_towards(view, wanted, room, of.snapshot, Settings())
        if isinstance(move, Grow)
    ]
    gpus = {id_: count for view in mine for id_, count in view.trainer.element_gpus.items()}
    released_to = Counter[str]()
    for grow in grows:
        released_to[next(iter(grow.nodes))] += gpus[grow.elements[0]]
    assert released_to == {"n1": 1, "n2": 3, "n3": 1}


def test_trainers_of_gpus_have_no_node_without_them_and_others_have_these_whole(
    planning: Planning,
) -> None:
    mine = trainer(6, 2, more=3), trainer(7, 0, more=3)
    nodes = node("n1", 0, 0, has=0), node("n2", 0, 0, cpus=3, has=0), node("n3", 3, 0)
    found, waiting = plan(planning, seen(nodes, *mine, busy="n2 n3"))
    assert (found, waiting) == ({"6": {"n3"}, "7": {"n1"}}, set())
    standing = planning.standing
    assert standing is not None
    assert gpus_of(standing.problem, standing.plan) == (5, 2)


def test_whole_node_trainers_leave_nodes_without_gpus_for_jobs_that_take_parts() -> None:
    mine = trainer(5, 0, "n1"), trainer(6, 0, "n2")
    nodes = node("n1", 0, 0, cpus=CPUS, has=0), node("n2", 0, 0, cpus=CPUS, has=0)
    assert not headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 1, gpus=1)])).elements
    one = headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 1, cpus=2)]))
    assert {id_.array for id_ in one.elements} == {5}
    both = headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 2)]))
    assert {id_.array for id_ in both.elements} == {5, 6}
