"""Which nodes ordinary jobs are to find idle when Slurm's next pass begins."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.decide.actions import Wanted
from bftrainer_slurm.controller.decide.available import wanted
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Element,
    ElementId,
    ElementState,
    Reservation,
    WaitingJob,
    nodes_of,
)
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    element,
    node,
    picture,
    released,
    snapshot,
    view,
    view_of,
)
from tests.controller.worlds import trainer as a_trainer

PARTITIONS = frozenset({"main", "bftrainer"})
NODES = tuple(replace(node(f"n{number}"), partitions=PARTITIONS) for number in range(1, 7))
RUNNING = ElementState.RUNNING


def trainer(*nodes: str, array: int = ARRAY, min_nodes: int = 1) -> TrainerView:
    elements = tuple(
        Element(ElementId(array, task), RUNNING, name) for task, name in enumerate(nodes)
    )
    return view_of(replace(a_trainer(*elements, min_nodes=min_nodes), array=array))


def job(job_id: int, nodes: int, **changes: object) -> WaitingJob:
    return replace(WaitingJob(job_id, "main", nodes), **changes)  # type: ignore[arg-type]


def asked(
    *waiting: WaitingJob,
    views: tuple[TrainerView, ...] = (),
    busy: str = "",
    left: frozenset[int] = frozenset(),
    reservations: tuple[Reservation, ...] = (),
) -> Wanted:
    plain = snapshot(NODES, ordinary_nodes=frozenset(busy.split()))
    queue = replace(plain.queue, waiting=waiting)
    seen: Snapshot = replace(plain, queue=queue, reservations=reservations)
    return wanted(picture(*views, of=seen, forecast=BackfillForecast(left=left)))


THREE_OF_SIX = "n4 n5 n6"


def test_idle_nodes_are_kept_for_a_job_that_no_pass_has_judged() -> None:
    assert asked(job(7, 2)) == Wanted(frozenset({"n1", "n2"}))


def test_what_idle_nodes_lack_trainers_leave() -> None:
    mine = trainer("n2", "n3")
    found = asked(job(7, 2), views=(mine,), busy=THREE_OF_SIX)
    assert found.idle == {"n1"}
    assert len(found.leave) == 1
    assert len(nodes_of(mine.running().values()) & found.leave) == 1


def test_a_job_that_all_of_them_do_not_suffice_for_wants_none() -> None:
    assert asked(job(7, 4), views=(trainer("n2", "n3"),), busy=THREE_OF_SIX) == Wanted()


def test_jobs_are_served_by_priority_each_with_nodes_of_its_own() -> None:
    large, small = job(7, 3, priority=5), job(8, 1, priority=9)
    found = asked(large, small, views=(trainer("n2", "n3"),), busy=THREE_OF_SIX)
    assert (found.idle, found.leave) == ({"n1"}, frozenset())


def test_each_task_of_an_array_is_a_job() -> None:
    assert len(asked(job(7, 1, count=4)).idle) == 4
    assert len(asked(job(7, 2, count=2), busy=THREE_OF_SIX).idle) == 2


def test_who_has_most_to_spare_leaves_first() -> None:
    tight, large = trainer("n1", array=1), trainer("n2", "n3", "n4", array=2)
    found = asked(job(7, 2), views=(tight, large), busy="n5 n6")
    assert found.leave < {"n2", "n3", "n4"}
    assert asked(job(7, 4), views=(tight, large), busy="n5 n6").leave == {"n1", "n2", "n3", "n4"}


def test_a_node_that_an_element_is_leaving_counts_as_idle() -> None:
    leaving = view(
        element(0, RUNNING, "n2"),
        element(1, RUNNING, "n3"),
        elements={1: ElementRecord(Phase.LEAVING, NOW_S, "n3")},
    )
    assert asked(job(7, 2), views=(leaving,), busy=THREE_OF_SIX) == Wanted(frozenset({"n1", "n3"}))


def test_a_job_that_a_pass_left_waiting_beside_idle_nodes_is_left_alone() -> None:
    assert asked(job(7, 2), left=frozenset({7})) == Wanted()


def test_a_node_where_an_element_is_about_to_start_counts_as_idle() -> None:
    about_to = view(
        element(0, RUNNING, "n2"),
        element(1, ElementState.PENDING),
        elements={1: released("n3")},
    )
    assert asked(job(7, 2), views=(about_to,), busy=THREE_OF_SIX) == Wanted(frozenset({"n1", "n3"}))


def test_a_job_that_waits_for_something_else_wants_none() -> None:
    assert asked(job(7, 2, for_nodes=False)) == Wanted()


def test_a_job_that_would_reach_into_a_planned_start_of_one_before_it_does_not_fit() -> None:
    first = job(7, 6, priority=9, expected_start_s=NOW_S + 600, expected_nodes=tuple(
        one.name for one in NODES))  # fmt: skip
    busy = "n1 n2"
    assert asked(first, job(8, 1, minutes=5), busy=busy) == Wanted(frozenset({"n3"}))
    assert asked(first, job(8, 1, minutes=20), busy=busy) == Wanted()
    assert (
        asked(replace(first, priority=1), job(8, 1, priority=2, minutes=20), busy=busy) != Wanted()
    )


def test_a_job_that_is_served_does_not_need_the_nodes_that_an_earlier_pass_planned_for_it() -> None:
    planned = {"expected_start_s": NOW_S + 40.0, "expected_nodes": ("n2", "n3")}
    first = job(7, 2, priority=9, minutes=3, **planned)
    second = job(8, 1, priority=8, minutes=2)
    assert asked(first, second, busy=THREE_OF_SIX).idle == {"n1", "n2", "n3"}


def test_nor_does_one_whose_planned_start_is_due_before_its_nodes_are_free() -> None:
    due = job(7, 2, expected_start_s=NOW_S + 3, expected_nodes=("n1", "n4"))
    found = asked(due, views=(trainer("n2", "n3"),), busy=THREE_OF_SIX)
    assert (found.idle, len(found.leave)) == ({"n1"}, 1)


def test_an_array_that_is_served_in_part_keeps_what_is_planned_for_it() -> None:
    planned = {"expected_start_s": NOW_S + 40.0, "expected_nodes": ("n3", "n4")}
    first = job(7, 2, priority=9, minutes=3, count=2, **planned)
    second = job(8, 1, priority=8, minutes=2)
    assert asked(first, second, busy=THREE_OF_SIX).idle == {"n1", "n2"}


def test_nor_does_one_that_would_reach_into_a_reservation() -> None:
    names = tuple(one.name for one in NODES)
    soon = Reservation("maintenance", NOW_S + 600, NOW_S + 9000, names)
    assert asked(job(8, 1, minutes=20), reservations=(soon,)) == Wanted()
    assert asked(job(8, 1, minutes=5), reservations=(soon,)) != Wanted()


def test_the_nodes_of_a_start_that_is_planned_in_a_moment_are_emptied() -> None:
    due = job(7, 6, expected_start_s=NOW_S + 3, expected_nodes=("n2", "n4"))
    found = asked(due, views=(trainer("n2", "n3"),), busy="n5 n6")
    assert (found.idle, found.leave) == ({"n4"}, {"n2"})
