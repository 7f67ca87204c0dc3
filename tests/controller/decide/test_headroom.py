"""Which nodes, and which GPUs of shared ones, ordinary jobs are to find free as a pass begins."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import Headroom, Shrink, elements_of
from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Configuration,
    Memory,
    Node,
    NodeState,
    Part,
    Reservation,
    Resources,
    WaitingJob,
)
from bftrainer_slurm.planner.problem import Plan, Problem
from tests.controller.decide.test_decision import Deciding
from tests.controller.decide.test_parts import trainer
from tests.controller.setting import Planner
from tests.controller.worlds import (
    NOW_S,
    cases,
    cluster,
    node,
    released,
    snapshot,
    view,
)

SIX = tuple(f"n{number}" for number in range(1, 7))
WHOLE = tuple(node(name, partition="main bftrainer") for name in SIX)


def ids(elements: Iterable[object]) -> str:
    """These elements, as users see them."""
    return " ".join(sorted(map(str, elements)))


def whole(nodes: str, array: int = 12) -> TrainerView:
    """A trainer that has these nodes whole."""
    return view(*(f"running {name}" for name in nodes.split()), array=array)


def job(nodes: int, job_id: int = 7, **changes: Any) -> WaitingJob:
    return WaitingJob(job_id, "main", nodes, **changes)


def of_whole_nodes(
    *waiting: WaitingJob,
    views: tuple[TrainerView, ...] = (),
    busy: str = "",
    left: frozenset[int] = frozenset(),
    reservations: tuple[Reservation, ...] = (),
    nodes: tuple[Node, ...] = WHOLE,
) -> tuple[set[str], set[str]]:
    """Return the nodes that stay idle, and those that elements leave."""
    plain = snapshot(nodes, ordinary_nodes=frozenset(busy.split()), waiting=waiting)
    seen = replace(plain, reservations=reservations)
    found = headroom(cluster(*views, of=seen, forecast=BackfillForecast(left=left)))
    on = {id_: node for view in views for id_, node in view.placed.items()}
    leave = {on[id_] for id_ in found.elements}
    return set(found.kept) - leave, leave


HALF = {"busy": "n4 n5 n6"}
BESIDE = {**HALF, "views": (whole("n2 n3"),)}
LEAVING = view("running n2", "running n3", elements={1: ElementRecord(Phase.LEAVING, NOW_S, "n3")})
ABOUT_TO_START = view("running n2", "pending", elements={1: released("n3")})
SOON = {"reservations": (Reservation("maintenance", NOW_S + 600, NOW_S + 9000, SIX),)}
FIRST = job(6, priority=9, expected_start_s=NOW_S + 600, expected_nodes=SIX)
LATER = {"expected_start_s": NOW_S + 40.0, "priority": 9, "minutes": 3}
SERVED = job(2, expected_nodes=("n2", "n3"), **LATER)
SERVED_IN_PART = job(2, expected_nodes=("n3", "n4"), count=2, **LATER)
SECOND = job(1, 8, priority=8, minutes=2)
# Slurm wakes nodes for ordinary jobs, if those that are awake do not suffice.
ASLEEP = {
    "views": (whole("n2 n3"),),
    "nodes": tuple(
        replace(one, state=NodeState.POWERED_DOWN) if one.name > "n3" else one for one in WHOLE
    ),
}


@cases(
    "jobs, more, idle, leave",
    idle_ones_are_kept_for_a_job_that_no_pass_has_judged=([job(2)], {}, "n1 n2", ""),
    a_job_that_all_of_them_do_not_suffice_for_wants_none=([job(4)], BESIDE, "", ""),
    jobs_are_served_by_priority_each_with_nodes_of_its_own=(
        [job(3, priority=5), job(1, 8, priority=9)], BESIDE, "n1", ""
    ),
    each_task_of_an_array_is_a_job=([job(1, count=4)], {}, "n1 n2 n3 n4", ""),
    also_of_one_that_only_some_can_start=([job(2, count=2)], HALF, "n1 n2", ""),
    one_that_is_being_left_counts_as_idle=([job(2)], {**HALF, "views": (LEAVING,)}, "n1 n3", ""),
    so_does_one_where_one_is_to_start=([job(2)], {**HALF, "views": (ABOUT_TO_START,)}, "n1 n3", ""),
    one_that_a_pass_left_beside_idle_ones_wants_none=([job(2)], {"left": frozenset({7})}, "", ""),
    a_job_that_waits_for_something_else_wants_none=([job(2, for_nodes=False)], {}, "", ""),
    a_short_job_ends_before_the_planned_start_of_one_before_it=(
        [FIRST, job(1, 8, minutes=5)], {"busy": "n1 n2"}, "n3", ""
    ),
    one_that_reaches_into_it_does_not=([FIRST, job(1, 8, minutes=20)], {"busy": "n1 n2"}, "", ""),
    it_may_reach_into_that_of_one_behind_it=(
        [replace(FIRST, priority=1), job(1, 8, priority=2, minutes=20)], {"busy": "n1 n2"}, "n3", ""
    ),
    one_that_would_reach_into_a_reservation_does_not_fit=([job(1, minutes=20)], SOON, "", ""),
    one_that_ends_before_does=([job(1, minutes=5)], SOON, "n1", ""),
    a_job_that_is_served_does_not_need_those_that_an_earlier_pass_planned_for_it=(
        [SERVED, SECOND], HALF, "n1 n2 n3", ""
    ),
    an_array_served_in_part_keeps_what_is_planned=([SERVED_IN_PART, SECOND], HALF, "n1 n2", ""),
    those_of_a_start_that_is_planned_in_a_moment_are_emptied=(
        [job(6, expected_start_s=NOW_S + 3, expected_nodes=("n2", "n4"))],
        {"busy": "n5 n6", "views": (whole("n2 n3"),)}, "n4", "n2"
    ),
    what_idle_ones_lack_trainers_leave=([job(2)], BESIDE, "n1", "n3"),
    also_for_a_planned_start_that_is_due_before_its_nodes_are_free=(
        [job(2, expected_start_s=NOW_S + 3, expected_nodes=("n1", "n4"))], BESIDE, "n1", "n3"
    ),
    who_has_most_to_spare_leaves_first=(
        [job(2)], {"views": (whole("n1", 1), whole("n2 n3 n4", 2)), "busy": "n5 n6"}, "", "n3 n4"
    ),
    none_that_is_switched_off_where_one_awake_is_enough=([job(1)], ASLEEP, "n1", ""),
    those_of_trainers_are_emptied_before_any_is_woken=([job(3)], ASLEEP, "n1", "n2 n3"),
    also_where_some_have_to_be_woken=([job(5)], ASLEEP, "n1 n4 n5", "n2 n3"),
    who_wants_more_than_there_are_gets_none=([job(7)], ASLEEP, "", ""),
)  # fmt: skip
def test_of_nodes(jobs: list[WaitingJob], more: dict[str, Any], idle: str, leave: str) -> None:
    assert of_whole_nodes(*jobs, **more) == (set(idle.split()), set(leave.split()))


# Nodes that jobs share.

GPUS = 8
CPUS = 2  # of each GPU
MEMORY_MB = 16_000.0
NAMES = SIX[:4]
HAS = Resources(cpus=GPUS * CPUS)
NODES = tuple(replace(one, resources=HAS) for one in WHOLE[:4])
NOBODY = 0, 0, 0, 0  # how many GPUs of each node ordinary jobs have


def small(job_id: int, gpus: int, nodes: int = 1, **more: Any) -> WaitingJob:
    """A job of so many GPUs of each of its nodes."""
    return job(nodes, job_id, gpus=gpus, **{"cpus": CPUS * gpus} | more)


def seen(
    jobs: Sequence[WaitingJob],
    *views: TrainerView,
    busy: Sequence[int] = NOBODY,
    free_mb: Sequence[float] = (math.inf,) * 4,
    nodes: Sequence[Node] = NODES,
    next_gpus: Sequence[int] = (),
    left: frozenset[int] = frozenset(),
    counts_memory: bool = True,
) -> ClusterView:
    """Nodes of which ordinary jobs have so many GPUs, after jobs of ``next_gpus``."""
    frees = zip(NAMES, (GPUS - count for count in busy), free_mb, strict=True)
    free = {name: Part(gpus, CPUS * gpus, mb) for name, gpus, mb in frees}
    used = frozenset(name for name, count in zip(NAMES, busy, strict=True) if count)
    of = replace(
        snapshot(nodes, waiting=tuple(jobs), ordinary_nodes=used),
        shared={name: SharedNode(GPUS, part, Part(0, 99, 1e9)) for name, part in free.items()},
        configuration=Configuration(counts_memory=counts_memory),
    )
    nexts = tuple(small(-gpus, gpus) for gpus in next_gpus)
    return cluster(*views, of=of, forecast=BackfillForecast(left=left), next_jobs=nexts)


def asked(jobs: Sequence[WaitingJob], *views: TrainerView, **more: Any) -> Headroom:
    return headroom(seen(jobs, *views, **more))


STANDS = [trainer(5, 4, "n1", said="suspended")]
MANY = [trainer(5, 4, "n1"), trainer(6, 2, "n1"), trainer(7, 1, "n1"), trainer(8, 1, "n1")]
PLANNED = small(1, 8, priority=9, expected_start_s=NOW_S + 600, expected_nodes=("n3",))
EVERYWHERE = [trainer(5, 4, *NAMES), trainer(6, 2, *NAMES), trainer(7, 2, *NAMES)]


@cases(
    "jobs, mine, busy, kept, leave",
    free_ones_of_the_first_node=([small(1, 2)], [trainer(5, 4, "n1")], (2, 0, 0, 0), {"n1": 2}, ""),
    for_what_is_missing_an_element_leaves=(
        [small(1, 2)], [trainer(5, 4, "n1"), trainer(6, 1, "n1")], (3, 0, 0, 0), {"n1": 2}, "5_0"
    ),
    of_equals_the_one_leaves_whose_trainer_has_most_to_spare=(
        [small(1, 4)], [trainer(5, 4, "n1"), trainer(6, 4, "n1", "n2")], NOBODY, {"n1": 4}, "6_0"
    ),
    the_smallest_that_alone_gives_enough=([small(1, 2)], MANY, NOBODY, {"n1": 2}, "6_0"),
    else_the_largest_first=([small(1, 5)], MANY, NOBODY, {"n1": 5}, "5_0 7_0"),
    all_if_need_be=([small(1, 8)], MANY, NOBODY, {"n1": 8}, "5_0 6_0 7_0 8_0"),
    one_of_whole_nodes_too=([small(1, 1)], [trainer(5, 0, "n2")], (8, 0, 0, 0), {"n2": 1}, "5_0"),
    # Without trainers the first job would be on n1, and the second one would find n2 empty.
    trainers_do_not_scatter_ordinary_jobs=(
        [small(1, 1), small(2, 8)], [trainer(5, 4, "n1"), trainer(6, 2, "n3")], (4, 0, 0, 0),
        {"n1": 1, "n2": 8}, "5_0"
    ),
    none_where_no_node_has_enough=([small(1, 4)], [trainer(5, 2, *NAMES)], (6, 6, 6, 6), {}, ""),
    none_on_too_few_nodes=([small(1, 8, nodes=2)], [trainer(5, 2, *NAMES)], (0, 1, 1, 1), {}, ""),
    each_task_of_an_array_has_its_own=([small(1, 4, count=3)], [], NOBODY, {"n1": 8, "n2": 4}, ""),
    so_has_each_node_of_a_job=([small(1, 4, nodes=2)], [], NOBODY, {"n1": 4, "n2": 4}, ""),
    all_of_a_node_without_ordinary_jobs_where_a_job_may_need_it_whole=(
        [small(1, 0)], [trainer(5, 2, "n2")], (1, 0, 0, 0), {"n2": 8}, "5_0"
    ),
    a_suspended_element_has_its_part=([small(1, 4)], STANDS, (0, 8, 8, 8), {"n1": 4}, ""),
    and_does_not_leave=([small(1, 5)], STANDS, (0, 8, 8, 8), {}, ""),
    # A pass plans with whole nodes: the rest of the node is for what ends before.
    before_a_planned_start=([PLANNED, small(2, 1, minutes=5)], [], (8, 8, 1, 8), {"n3": 1}, ""),
    but_nothing_longer=([PLANNED, small(2, 1, minutes=20)], [], (8, 8, 1, 8), {}, ""),
    # GPUs are kept with the processors that a job waits for, as they go with them.
    for_processors_the_smallest_that_gives_enough_leaves=(
        [small(1, 0, cpus=4)], EVERYWHERE, NOBODY, {"n1": 2}, "6_0"
    ),
    or_the_largest=([small(1, 0, cpus=8)], EVERYWHERE, NOBODY, {"n1": 4}, "5_0"),
    or_both=([small(1, 0, cpus=12)], EVERYWHERE, NOBODY, {"n1": 6}, "5_0 6_0"),
    none_for_more_processors_than_a_node_has=([small(1, 0, cpus=17)], EVERYWHERE, NOBODY, {}, ""),
    one_node_of_those_with_the_fewest_processors=([small(1, 1)], [], (4, 8, 7, 6), {"n3": 1}, ""),
    # Seen on 22.05.8 with ``-n1``: then all nodes count alike, by what the job takes.
    the_first_if_tasks_are_said=([small(1, 1, tasks_said=True)], [], (4, 8, 7, 6), {"n1": 1}, ""),
)  # fmt: skip
def test_of_gpus(
    jobs: list[WaitingJob],
    mine: list[TrainerView],
    busy: tuple[int, ...],
    kept: dict[str, int],
    leave: str,
) -> None:
    found = asked(jobs, *mine, busy=busy)
    assert (found.kept, ids(found.elements)) == (kept, leave)


def test_slurm_wakes_a_shared_node_only_if_those_that_are_awake_do_not_suffice() -> None:
    first, *others = NODES
    asleep = [replace(first, state=NodeState.POWERED_DOWN), *others]
    assert asked([small(1, 2)], nodes=asleep).kept == {"n2": 2}
    assert asked([small(1, GPUS, nodes=4)], nodes=asleep).kept == dict.fromkeys(NAMES, GPUS)


PLACED = [trainer(5, 4, "n1", "n2"), trainer(6, 1, "n1")]
FULL = [*PLACED, trainer(7, 1, "n1", "n2")]
HALVES = [trainer(5, 4, "n1", "n2"), trainer(6, 4, "n1", "n2")]


@cases(
    "sizes, jobs, mine, busy, kept, leave",
    where_the_next_one_would_go_without_trainers=([1], [], PLACED, (2, 2, 8, 8), {"n1": 1}, ""),
    for_it_an_element_leaves=([1], [], FULL, (2, 2, 8, 8), {"n1": 1}, "7_0"),
    one_for_each_size=([1, 2, 4], [], [], (4, 2, 0, 0), {"n1": 4}, ""),
    as_far_as_an_eighth_of_all_gpus=([1, 2, 4, 8], [], [], (4, 2, 0, 0), {"n1": 4}, ""),
    small_ones_first=([2, 6], [], [], (4, 2, 0, 0), {"n1": 2}, ""),
    beside_jobs_that_wait=([1], [small(1, 4)], [], (4, 0, 0, 0), {"n1": 4, "n2": 1}, ""),
    none_for_which_one_would_be_too_small=([1], [], [trainer(5, 4, "n1")], (4, 0, 0, 0), {}, ""),
    not_more_than_an_eighth_for_one=([8], [], HALVES, (0, 0, 8, 8), {}, ""),
    one_of_many_gpus=([4], [], HALVES, (0, 0, 8, 8), {"n1": 4}, "5_0"),
    # Slurm looks again as the first of them ends: room elsewhere would draw the job there.
    for_a_job_that_waits_alone=([4], [small(1, 8)], HALVES, (0, 0, 8, 8), {"n1": 8}, "5_0 6_0"),
)  # fmt: skip
def test_places_of_the_next_jobs_stay_free(
    sizes: list[int],
    jobs: list[WaitingJob],
    mine: list[TrainerView],
    busy: tuple[int, ...],
    kept: dict[str, int],
    leave: str,
) -> None:
    found = asked(jobs, *mine, busy=busy, next_gpus=sizes)
    assert (found.kept, ids(found.elements), found.at_once) == (kept, leave, True)


@pytest.mark.parametrize("more", [{"busy": (1, 0, 0, 0)}, {"left": frozenset({1})}])
def test_none_does_while_a_job_waits_in_vain(more: dict[str, Any]) -> None:
    """Then only backfill starts jobs, and trainers leave ahead of its passes."""
    assert asked([small(1, 8, 4)], next_gpus=[1], **more) == Headroom()


class OnN1(Planner):
    """Leaves each trainer n1 alone."""

    def plan(self, problem: Problem) -> Plan:
        return Plan({one.key: frozenset({"n1"}) for one in problem.trainers}, 0.0, 0.0, "optimal")


def test_what_the_plan_takes_from_a_trainer_stays_until_waiting_jobs_have_started() -> None:
    for jobs, left in (((), "5_1"), ((small(1, 1),), "")):
        there = seen(jobs, trainer(5, 1, "n1", "n2"), next_gpus=[1])
        actions = Deciding(planner=OnN1())(of=there).actions
        assert ids(elements_of(Shrink, actions)) == left


def test_elements_leave_at_once_where_jobs_start_as_they_come_else_ahead_of_a_pass() -> None:
    """The next pass is far away."""
    mine = trainer(5, 4, "n1", "n2"), trainer(6, 2, "n1", "n2"), trainer(7, 2, "n1", "n2")
    for nexts, left in (([1], 1), ([], 0)):  # for the job, not yet for the next one
        there = seen([small(1, 2)], *mine, next_gpus=nexts)
        decision = Deciding()(of=replace(there, forecast=BackfillForecast(due_s=NOW_S + 20)))
        gone = elements_of(Shrink, decision.actions)
        assert (decision.as_they_come, len(gone)) == (bool(nexts), left)


def wants(memory_mb: float = 0.0, cpu_mb: float = 0.0, cpus: int = 1) -> WaitingJob:
    return small(1, 0, cpus=cpus, memory=Memory(memory_mb, cpu_mb))


THREE = [
    trainer(array, gpus, "n1", memory_mb=mb) for array, gpus, mb in
    ((5, 4, 2000.0), (6, 2, 8000.0), (7, 1, 500.0))
]  # fmt: skip
LITTLE = [trainer(5, 2, *NAMES, memory_mb=4000.0)]
MUCH = [trainer(5, 2, "n1", memory_mb=12_000.0)]
N1_ALL = (MEMORY_MB, 0.0, 0.0, 0.0)


@cases(
    "job, mine, free_mb, kept, leave",
    # GPUs that are useless without the memory are kept.
    where_there_is_enough_nobody_leaves=(wants(5500), THREE, N1_ALL, {"n1": 3}, ""),
    the_smallest_that_gives_enough_leaves=(wants(5600), THREE, N1_ALL, {"n1": 3}, "7_0"),
    or_a_larger_one=(wants(7000), THREE, N1_ALL, {"n1": 4}, "6_0"),
    or_several=(wants(14_000), THREE, N1_ALL, {"n1": 7}, "6_0 7_0"),
    for_each_processor_if_said=(wants(cpu_mb=1000, cpus=5), MUCH, N1_ALL, {"n1": 3}, "5_0"),
    enough_for_each=(wants(cpu_mb=1000, cpus=4), MUCH, N1_ALL, {"n1": 2}, ""),
    nobody_leaves_for_memory_that_ordinary_jobs_have=(wants(9000), LITTLE, (8000.0,) * 4, {}, ""),
    but_where_they_do_not=(wants(9000), LITTLE, (8000, 8000, 9500, 8000), {"n3": 5}, "5_2"),
    where_memory_is_not_known_it_is_enough=(wants(9000), LITTLE, (math.inf,) * 4, {"n1": 5}, ""),
)  # fmt: skip
def test_of_memory(
    job: WaitingJob,
    mine: list[TrainerView],
    free_mb: tuple[float, ...],
    kept: dict[str, int],
    leave: str,
) -> None:
    has = replace(HAS, memory_mb=MEMORY_MB)
    nodes = [replace(one, resources=has) for one in NODES]
    found = asked([job], *mine, free_mb=free_mb, nodes=nodes)
    assert (found.kept, ids(found.elements)) == (kept, leave)


def test_memory_that_slurm_does_not_count_is_enough() -> None:
    found = asked([wants(9000)], *LITTLE, free_mb=(4000.0,) * 4, counts_memory=False)
    assert not found.elements and found.kept


def started(jobs: Sequence[WaitingJob], free: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    """Start jobs as a pass does where their nodes have so many GPUs, and processors to match."""
    left, on = Counter(free), dict[int, tuple[str, ...]]()
    for one in jobs:
        has = [left[name] if left[name] >= one.gpus else 0 for name in NAMES]
        found = eval_nodes(one.nodes, has)
        if found:
            on[one.job_id] = tuple(NAMES[index] for index in found)
            left.subtract(dict.fromkeys(on[one.job_id], one.gpus))
    return on


def eval_nodes(rem_nodes: int, cpus: Sequence[int]) -> list[int]:
    """Choose as ``_eval_nodes`` in Slurm's job_test.c does, line by line; 0: it has no room."""
    consec: list[list[int]] = [[]]
    for index, has in enumerate(cpus):
        if has:
            consec[-1].append(index)
        elif consec[-1]:
            consec.append([])
    node_map: list[int] = []
    while rem_nodes > 0:
        best_fit: list[int] = []
        best_fit_cpus, best_fit_sufficient = 0, False
        for run in filter(None, consec):
            consec_cpus, sufficient = sum(cpus[one] for one in run), len(run) >= rem_nodes
            if (
                not best_fit
                or (sufficient and not best_fit_sufficient)
                or (sufficient and consec_cpus < best_fit_cpus)
                or (not sufficient and consec_cpus > best_fit_cpus)
            ):
                best_fit, best_fit_cpus, best_fit_sufficient = list(run), consec_cpus, sufficient
        if not best_fit:
            return []
        consec.remove(best_fit)
        if rem_nodes == 1:
            best_fit = [min(best_fit, key=lambda one: cpus[one])]
        for one in best_fit[:rem_nodes]:
            node_map.append(one)
            rem_nodes -= 1
    return node_map


def beside_jobs(busy: Sequence[int]) -> dict[str, int]:
    """The GPUs that ordinary jobs leave of each node."""
    return {name: GPUS - count for name, count in zip(NAMES, busy, strict=True)}


def fill(free: Mapping[str, int], sizes: Sequence[tuple[int, Set[str]]]) -> list[TrainerView]:
    """Trainers with so many GPUs of each of these nodes, as far as there is room."""
    idle, views = Counter(free), list[TrainerView]()
    for array, (gpus, names) in enumerate(sizes, 20):
        on = sorted(name for name in names if idle[name] >= gpus)
        idle.subtract(dict.fromkeys(on, gpus))
        views += [trainer(array, gpus, *on)] * bool(on)
    return views


def test_a_pass_starts_jobs_where_it_would_without_trainers() -> None:
    """With what leaves for those jobs alone, two in three of these queues would differ."""
    draw, elsewhere = random.Random(1), 0
    sizes = [*[(1, 1)] * 5, (2, 1), (4, 1), (8, 1), (8, 2), (4, 2)]
    for _ in range(200):
        busy = [draw.choice([0, 1, 2, 3, 4, 6, 8]) for _ in NAMES]
        on = [(gpus, {name for name in NAMES if draw.random() < 0.85}) for gpus in (4, 2, 1, 1)]
        jobs = [small(number, *draw.choice(sizes)) for number in range(1, draw.randint(3, 9))]
        views, free = fill(beside_jobs(busy), on), beside_jobs(busy)
        found = asked(jobs, *views, busy=busy)
        for one in views:
            for id_, name in one.running().items():
                free[name] -= one.trainer.demands.gpus * (id_ not in found.elements)
        assert all(units <= free[name] for name, units in found.kept.items())
        starts, would = started(jobs, free), started(jobs, beside_jobs(busy))
        assert starts.keys() >= would.keys()
        elsewhere += starts != would
    assert elsewhere <= 4
