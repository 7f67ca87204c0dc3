"""Parts of shared nodes: what the plan gives out, what an element finds there, and who waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bftrainer_slurm.controller.decide.actions import Grow, Shrink, elements_of
from bftrainer_slurm.controller.decide.available import free_units, growable, refill
from bftrainer_slurm.controller.decide.eligibility import eligibility
from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.decide.planning import offered, problem_of
from bftrainer_slurm.controller.decide.reconcile import Room, moves_towards, without_room
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.shared_nodes import shared_nodes
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Demands,
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
from bftrainer_slurm.planner.problem import Plan, Problem, gpus_of
from tests.controller.decide.test_planning import known
from tests.controller.setting import Planner
from tests.controller.worlds import (
    cases,
    cluster,
    element,
    named,
    released,
    snapshot,
    state_of,
    view_of,
)
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
    array: int,
    gpus: int,
    *nodes: str,
    said: str = "running",
    more: int = 0,
    memory_mb: float = 0.0,
    cpus: int = 0,
) -> TrainerView:
    """A trainer of so many GPUs an element, 0 for whole nodes; two processors a GPU by default."""
    cpus = cpus or 2 * gpus or CPUS
    states = [*(f"{said} {name}" for name in nodes), *["held"] * more]
    elements = (
        element(task, one, cpus=cpus, memory_mb=memory_mb, gpus=gpus)
        for task, one in enumerate(states)
    )
    asks = Resources(cpus=cpus if gpus else 0, gres=gres(gpus))
    demands = Demands(resources=asks, memory=Memory(memory_mb), gpus=gpus)
    return view_of(replace(a_trainer(*elements, array=array), demands=demands))


def seen(
    nodes: Sequence[Node], *views: TrainerView, jobs: Sequence[WaitingJob] = (), busy: str = ""
) -> ClusterView:
    """The nodes with these trainers on them; ordinary jobs are on the ``busy`` ones."""
    plain = snapshot(nodes, waiting=tuple(jobs), ordinary_nodes=frozenset(busy.split()))
    shared = shared_nodes(nodes, [view.trainer for view in views])
    of = replace(plain, shared=shared)
    return cluster(*views, of=of, forecast=BackfillForecast())


def free(of: ClusterView, reserve: int = 0) -> dict[str, int]:
    return growable(free_units(of), of, Settings(reserve=reserve))


def planned(of: ClusterView) -> tuple[Problem, Plan]:
    eligible = eligibility(of.views, of.snapshot)
    problem = problem_of(of, free(of), find("throughput"), known, {}, eligible)
    return problem, Planner().plan(problem)


def nodes_of(plan: Plan) -> dict[str, set[str]]:
    return {key: set(nodes) for key, nodes in plan.assignment.items()}


def test_the_plan_gives_out_gpus_with_memory_and_processors_to_match() -> None:
    """Ordinary jobs have three GPUs and most of the memory of n1, and most processors of n4."""
    mine = trainer(5, 1, "n1", more=1, memory_mb=1000), trainer(6, 2, "n2", more=2, memory_mb=2000)
    full, roomy, busy = node("n1", 4, 6000), node("n2", 2, 2000), node("n4", 0, 0, cpus=13)
    of = seen((full, roomy, node("n3", 0, 0), busy), *mine, busy="n1")
    assert offered(of, mine, free(of)) == {"n1": 3, "n2": 8, "n3": 8, "n4": 1}
    room = Room(of, free(of))
    assert room.take(mine[1], NAMES, mine[1].spare) == {"n1", "n3"}
    other = trainer(7, 1, more=3, memory_mb=1000)
    assert room.take(other, NAMES, other.spare) == {"n2", "n3"}  # the memory of n1 is gone


def test_a_reserve_of_gpus_is_kept_on_few_nodes_and_refilled_down_to_the_least_size() -> None:
    mine = trainer(5, 4, "n1"), trainer(6, 2, "n1", "n2", "n3")
    of = seen([node("n1", 7, 0), node("n2", 5, 0), node("n3", 6, 0)], *mine, busy="n1 n2 n3")
    left = [free(of, reserve=gpus) for gpus in (0, 4, 6)]
    assert left == [{"n1": 1, "n2": 3, "n3": 2}, {"n1": 1, "n3": 1}, {}]
    gone = [[str(one) for one in elements_of(Shrink, refill(free(of), of, gpus))] for gpus in
            (6, 7, 20)]  # fmt: skip
    assert gone == [[], ["6_1"], ["6_1", "6_2"]]  # each trainer keeps one


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


LITTLE, NEW = trainer(7, 1, "n1", memory_mb=100), trainer(6, 2, more=1, memory_mb=5000)
FEW = trainer(5, 1, "n1", cpus=12), trainer(7, 1, "n1", cpus=1), trainer(6, 1, more=1, cpus=6)


@cases(
    "on, views, waits",
    too_little_memory=(
        node("n1", 3, 6100), (trainer(5, 2, "n1", memory_mb=6000), LITTLE, NEW), [6]
    ),
    not_too_little=(node("n1", 1, 100), (LITTLE, NEW), []),
    too_few_processors=(node("n1", 2, 0, cpus=13), FEW, [6]),
)  # fmt: skip
def test_who_finds_too_little_beside_others_keeps_its_part_of_the_plan_and_waits(
    on: Node, views: tuple[TrainerView, ...], waits: list[int]
) -> None:
    of = seen([on], *views)
    _, plan = planned(of)
    assert nodes_of(plan) == {str(one.array): {"n1"} for one in views}
    assert [bar.array for bar in without_room(of.views, plan, Room(of, free(of)))] == waits


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
    assert {(*one.nodes, gpus[one.elements[0]]) for one in grows} == {
        ("n1", 1), ("n2", 3), ("n3", 1)
    }  # fmt: skip


def test_trainers_of_gpus_have_no_node_without_them_and_others_have_these_whole() -> None:
    mine = trainer(6, 2, more=3), trainer(7, 0, more=3)
    nodes = node("n1", 0, 0, has=0), node("n2", 0, 0, cpus=3, has=0), node("n3", 3, 0)
    problem, plan = planned(seen(nodes, *mine, busy="n2 n3"))
    assert nodes_of(plan) == {"6": {"n3"}, "7": {"n1"}}
    assert gpus_of(problem, plan) == (5, 2)


def test_whole_node_trainers_leave_nodes_without_gpus_for_jobs_that_take_parts() -> None:
    mine = trainer(5, 0, "n1"), trainer(6, 0, "n2")
    nodes = node("n1", 0, 0, cpus=CPUS, has=0), node("n2", 0, 0, cpus=CPUS, has=0)
    assert not headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 1, gpus=1)])).elements
    one = headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 1, cpus=2)]))
    assert {id_.array for id_ in one.elements} == {5}
    both = headroom(seen(nodes, *mine, jobs=[WaitingJob(1, "main", 2)]))
    assert {id_.array for id_ in both.elements} == {5, 6}
