"""Which nodes ordinary jobs are to find idle when Slurm's next pass begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bftrainer_slurm.controller.decide.headroom import headroom
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Node, NodeState, Reservation, WaitingJob
from tests.controller.worlds import ARRAY, NOW_S, cases, cluster, node, released, snapshot, view

NAMES = tuple(f"n{number}" for number in range(1, 7))
NODES = tuple(node(name, partition="main bftrainer") for name in NAMES)


def trainer(nodes: str, array: int = ARRAY) -> TrainerView:
    return view(*(f"running {name}" for name in nodes.split()), array=array)


def job(nodes: int, job_id: int = 7, **changes: Any) -> WaitingJob:
    return WaitingJob(job_id, "main", nodes, **changes)


def asked(
    *waiting: WaitingJob,
    views: tuple[TrainerView, ...] = (),
    busy: str = "",
    left: frozenset[int] = frozenset(),
    reservations: tuple[Reservation, ...] = (),
    nodes: tuple[Node, ...] = NODES,
) -> tuple[set[str], set[str]]:
    """Return the nodes that stay idle, and those that elements leave."""
    plain = snapshot(nodes, ordinary_nodes=frozenset(busy.split()), waiting=waiting)
    seen = replace(plain, reservations=reservations)
    found = headroom(cluster(*views, of=seen, forecast=BackfillForecast(left=left)))
    on = {id_: node for view in views for id_, node in view.placed.items()}
    leave = {on[id_] for id_ in found.elements}
    return set(found.kept) - leave, leave


HALF = {"busy": "n4 n5 n6"}
BESIDE = {**HALF, "views": (trainer("n2 n3"),)}
LEAVING = view("running n2", "running n3", elements={1: ElementRecord(Phase.LEAVING, NOW_S, "n3")})
ABOUT_TO_START = view("running n2", "pending", elements={1: released("n3")})
SOON = {"reservations": (Reservation("maintenance", NOW_S + 600, NOW_S + 9000, NAMES),)}
FIRST = job(6, priority=9, expected_start_s=NOW_S + 600, expected_nodes=NAMES)
LATER = {"expected_start_s": NOW_S + 40.0, "priority": 9, "minutes": 3}
SERVED = job(2, expected_nodes=("n2", "n3"), **LATER)
SERVED_IN_PART = job(2, expected_nodes=("n3", "n4"), count=2, **LATER)
SECOND = job(1, 8, priority=8, minutes=2)


@cases(
    "jobs, more, idle, leave",
    idle_ones_are_kept_for_a_job_that_no_pass_has_judged=([job(2)], {}, "n1 n2", ""),
    a_job_that_all_of_them_do_not_suffice_for_wants_none=([job(4)], BESIDE, "", ""),
    jobs_are_served_by_priority_each_with_nodes_of_its_own=(
        [job(3, priority=5), job(1, 8, priority=9)], BESIDE, "n1", ""
    ),
    each_task_of_an_array_is_a_job=([job(1, count=4)], {}, "n1 n2 n3 n4", ""),
    also_of_one_that_only_some_can_start=([job(2, count=2)], HALF, "n1 n2", ""),
    one_that_an_element_is_leaving_counts_as_idle=(
        [job(2)], {**HALF, "views": (LEAVING,)}, "n1 n3", ""
    ),
    so_does_one_where_an_element_is_about_to_start=(
        [job(2)], {**HALF, "views": (ABOUT_TO_START,)}, "n1 n3", ""
    ),
    a_job_that_a_pass_left_waiting_beside_idle_ones_is_left_alone=(
        [job(2)], {"left": frozenset({7})}, "", ""
    ),
    a_job_that_waits_for_something_else_wants_none=([job(2, for_nodes=False)], {}, "", ""),
    a_short_job_ends_before_the_planned_start_of_one_before_it=(
        [FIRST, job(1, 8, minutes=5)], {"busy": "n1 n2"}, "n3", ""
    ),
    one_that_would_reach_into_it_does_not_fit=(
        [FIRST, job(1, 8, minutes=20)], {"busy": "n1 n2"}, "", ""
    ),
    it_may_reach_into_that_of_one_behind_it=(
        [replace(FIRST, priority=1), job(1, 8, priority=2, minutes=20)], {"busy": "n1 n2"}, "n3", ""
    ),
    one_that_would_reach_into_a_reservation_does_not_fit=([job(1, minutes=20)], SOON, "", ""),
    one_that_ends_before_does=([job(1, minutes=5)], SOON, "n1", ""),
    a_job_that_is_served_does_not_need_those_that_an_earlier_pass_planned_for_it=(
        [SERVED, SECOND], HALF, "n1 n2 n3", ""
    ),
    an_array_that_is_served_in_part_keeps_what_is_planned_for_it=(
        [SERVED_IN_PART, SECOND], HALF, "n1 n2", ""
    ),
    those_of_a_start_that_is_planned_in_a_moment_are_emptied=(
        [job(6, expected_start_s=NOW_S + 3, expected_nodes=("n2", "n4"))],
        {"busy": "n5 n6", "views": (trainer("n2 n3"),)}, "n4", "n2"
    ),
)  # fmt: skip
def test_of_nodes(jobs: list[WaitingJob], more: dict[str, Any], idle: str, leave: str) -> None:
    assert asked(*jobs, **more) == (set(idle.split()), set(leave.split()))


@cases(
    "waits",
    for_one_that_no_pass_has_judged=job(2),
    for_one_whose_planned_start_is_due_before_its_nodes_are_free=(
        job(2, expected_start_s=NOW_S + 3, expected_nodes=("n1", "n4"))
    ),
)
def test_what_idle_nodes_lack_trainers_leave(waits: WaitingJob) -> None:
    idle, leave = asked(waits, **BESIDE)
    assert (idle, len(leave)) == ({"n1"}, 1)
    assert leave < {"n2", "n3"}


# Slurm wakes nodes for ordinary jobs, if those that are awake do not suffice.
ASLEEP = tuple(
    node(name, state, partition="main bftrainer")
    for name, state in zip(NAMES, [NodeState.IDLE] * 3 + [NodeState.POWERED_DOWN] * 3, strict=True)
)


@cases(
    "nodes, idle, leave",
    one_that_is_awake_is_enough=(1, "n1", ""),
    those_of_trainers_are_emptied_before_any_is_woken=(3, "n1", "n2 n3"),
    also_where_some_have_to_be_woken=(5, "n1 n4 n5", "n2 n3"),
    who_wants_more_than_there_are_gets_none=(7, "", ""),
)
def test_of_nodes_that_are_switched_off(nodes: int, idle: str, leave: str) -> None:
    found = asked(job(nodes), views=(trainer("n2 n3"),), nodes=ASLEEP)
    assert found == (set(idle.split()), set(leave.split()))


def test_who_has_most_to_spare_leaves_first() -> None:
    both = {"views": (trainer("n1", array=1), trainer("n2 n3 n4", array=2)), "busy": "n5 n6"}
    assert asked(job(2), **both)[1] < {"n2", "n3", "n4"}
    assert asked(job(4), **both)[1] == {"n1", "n2", "n3", "n4"}
