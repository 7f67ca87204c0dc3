"""What elements need by their phase, and the moves towards a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    Grow,
    Hold,
    Revive,
    Shrink,
    Trim,
    elements_of,
)
from bftrainer_slurm.controller.decide.reconcile import (
    Room,
    complete,
    hold_reclaimed,
    late_nodes,
    leave,
    maintain,
    moves_towards,
)
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView, views_of
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    Demands,
    Element,
    ElementId,
    Part,
    Reservation,
    TimeLimit,
    WaitingJob,
)
from bftrainer_slurm.planner.problem import Plan
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    cluster,
    element,
    failed,
    named,
    released,
    snapshot,
    state_of,
    trainer,
    view,
    view_of,
)

FIRST, SECOND, ANCHOR = (ElementId(ARRAY, task) for task in range(3))
HELD, PENDING = element(0, "held"), element(0, "pending")
ON_N1 = element(0, "running n1", start_s=NOW_S)
LATER = element(1, "running n1", start_s=NOW_S + 1)
UNLAUNCHED = element(0, "failed n1", exit_status=1, start_s=NOW_S, end_s=NOW_S)
CANCELLED, LAST_HELD = element(1, "cancelled"), element(1, "held")
REVIVED = ElementRecord(Phase.REVIVED, NOW_S)
DONE = (element(1, "completed"), element(2, "running n3"))
LEFT = tuple(element(task, "held") for task in (2, 3, 4))
MANY_LEFT = tuple(element(task, "held") for task in range(2, 70))


def at(after_s: float, **configured: Any) -> Snapshot:
    """Slurm, so much later."""
    return Snapshot(NOW_S + after_s, configuration=Configuration(**configured))


def room(free: str, of: Snapshot) -> Room:
    """These nodes are free."""
    return Room(cluster(of=of), dict.fromkeys(free.split(), 1))


def let_go(ordinary: str = "", reason: str = "", others: tuple[Element, ...] = ()) -> TrainerView:
    """A trainer whose first element was let go on n1, and has not started."""
    mine = trainer(replace(PENDING, reason=reason), *others)
    state = state_of(mine, TrainerState({0: released("n1")}))
    (seen,) = views_of([(mine, state)], frozenset(ordinary.split()))
    return seen


def anchored(*elements: str, anchor: str = "held", over: str | None = None) -> TrainerView:
    """A trainer of at most two nodes with these elements, and the task that never starts."""
    record, never = TrainerRecord(1, 2), element(2, anchor)
    mine = replace(trainer(*elements), record=record, anchor=never)
    return view_of(mine, replace(state_of(mine), over=over))


def ended_well(*left: Element, **state: object) -> TrainerView:
    """A trainer that has just finished, on n1 and n2, with these elements left."""
    return view("completed n1", "completed n2", *left, **state)


def cancel(*left: Element) -> Cancel:
    """The end of a finished trainer with these elements left."""
    return Cancel(tuple(one.id for one in left), "finished")


OTHERS = "another element has its node"
STRAY, TAKEN = "it was released by somebody else", "its node is taken"
REFUSED, NEVER = "Slurm does not start it there", "it must never start"
TRIM = Trim((ANCHOR,), "all others of its array have ended")
REVIVE = Revive((FIRST,), "failed")


@cases(
    "mine, after_s, actions",
    nothing_what_runs_waits_or_has_ended_well=(view(ON_N1, "held", "lost n2", "withheld"), 0, []),
    one_that_the_controller_did_not_let_go=(view(PENDING), 0, [Hold((FIRST,), STRAY)]),
    one_whose_node_went_to_an_ordinary_job=(let_go(ordinary="n1"), 0, [Hold((FIRST,), TAKEN)]),
    one_that_is_unfit=(let_go(reason="BadConstraints"), 0, [Hold((FIRST,), REFUSED)]),
    one_beyond_a_limit=(let_go(reason="AssocMaxJobsLimit"), 0, [Hold((FIRST,), REFUSED)]),
    nothing_one_that_waits_for_its_node=(let_go(reason="Resources"), 80, []),
    unless_it_does_so_for_long=(let_go(), 100, [Hold((FIRST,), "it has not started")]),
    one_on_a_node_that_another_one_has=(view(ON_N1, LATER), 0, [Shrink((SECOND,), OTHERS)]),
    one_that_failed_beside_one_that_slurm_has_lost=(view(failed(0), "lost n2"), 0, [REVIVE]),
    one_that_slurm_could_not_launch=(view(UNLAUNCHED), 0, [REVIVE]),
    nothing_one_that_was_just_brought_back=(view(failed(0), elements={0: REVIVED}), 0, []),
    nothing_what_its_owner_has_cancelled_as_a_whole=(view(failed(0), CANCELLED), 0, []),
    what_was_brought_back_of_a_trainer_that_was_being_cancelled=(
        view(HELD, CANCELLED, elements={0: replace(REVIVED, since_s=NOW_S - 5)}),
        0, [Cancel((FIRST,), "cancelled by its owner")],
    ),
    nothing_what_is_given_up_and_failed=(view(failed(0), over="why"), 0, []),
    what_is_left_of_who_is_given_up=(view(ON_N1, over="why"), 0, [Cancel((FIRST,), "why")]),
    nothing_for_a_while_who_was_cancelled=(view(ON_N1, over="why", cancelled_s=NOW_S), 15, []),
    but_then_again=(view(ON_N1, over="why", cancelled_s=NOW_S), 60, [Cancel((FIRST,), "why")]),
    nothing_of_who_is_given_up_is_left=(view("cancelled", over="why"), 120, []),
    one_of_a_finished_trainer_that_has_not_started=(
        let_go(others=DONE), 0, [Hold((FIRST,), "the training has finished")]
    ),
    nothing_as_others_of_a_finished_one_may_end=(view("completed", "running n1"), 0, []),
    where_they_do_not=(view("completed", "running n1"), 400, [cancel(LATER)]),
    nor_does_one_that_is_suspended=(view("completed", "suspended n1"), 400, [cancel(LATER)]),
    nothing_as_what_it_has_left_waits_for_the_nodes_where_others_ended=(ended_well(*LEFT), 0, []),
    where_these_do_not_come_in_minutes=(ended_well(*LEFT), 400, [cancel(*LEFT)]),
    very_many_that_are_left_at_once=(ended_well(*MANY_LEFT), 0, [cancel(*MANY_LEFT)]),
    those_of_which_slurm_has_forgotten_where_it_ended=(
        view(LAST_HELD, over="finished", finished_s=NOW_S), 0, [cancel(LAST_HELD)]
    ),
    nothing_a_finished_trainer_with_nothing_left=(view("completed"), 400, []),
    the_task_that_keeps_the_arrays_id_if_somebody_releases_it=(
        anchored("held", anchor="pending"), 0, [Hold((ANCHOR,), NEVER)]
    ),
    it_as_slurm_requeues_it=(anchored("held", anchor="delayed"), 0, [Hold((ANCHOR,), NEVER)]),
    it_as_it_runs=(anchored("held", anchor="running"), 0, [Shrink((ANCHOR,), NEVER)]),
    it_once_no_other_is_left=(anchored("completed", "lost"), 0, [TRIM]),
    it_once_all_are_cancelled=(anchored("cancelled", over="given up"), 0, [TRIM]),
    it_stays_while_others_come_back=(anchored("failed", "lost"), 0, [REVIVE]),
    not_of_who_is_given_up=(anchored("failed", "lost", over="given up"), 0, [TRIM]),
)  # fmt: skip
def test_needs(mine: TrainerView, after_s: float, actions: list[Action]) -> None:
    assert maintain(mine, at(after_s)) == actions


def behind(**configured: Any) -> Snapshot:
    """A job waits, a pass has left some of them, and an element has long been let go."""
    last = BackfillPass(NOW_S, active=False, tried=500, left=3)
    seen = replace(at(100, **configured), last_pass=None if configured else last)
    return replace(seen, queue=replace(seen.queue, waiting=(WaitingJob(9, "main", 1),)))


@cases(
    "mine, seen, nodes",
    not_in_time=(let_go(), at(80), []),
    then=(let_go(), at(100), ["n1"]),
    not_before_three_passes=(let_go(), at(360, backfill_s=120), []),
    then_too=(let_go(), at(361, backfill_s=120), ["n1"]),
    not_where_a_job_took_it=(let_go(ordinary="n1"), at(100), []),
    not_where_no_pass_may_have_tried_it=(let_go(), behind(), []),
    nor_where_slurm_limits_a_users_jobs=(let_go(), behind(backfill_of_user=20), []),
)
def test_a_node_is_blamed_for_an_element_that_does_not_start(
    mine: TrainerView, seen: Snapshot, nodes: list[str]
) -> None:
    assert late_nodes(mine, seen) == nodes


@pytest.mark.parametrize(("free", "why"), [(2, []), (1, [TAKEN])])
def test_one_of_a_part_is_held_for_which_ordinary_jobs_leave_too_few_gpus(
    free: int, why: list[str]
) -> None:
    plain = replace(trainer(replace(PENDING, gpus=2)), demands=Demands(gpus=2))
    mine = view_of(plain, TrainerState({0: released("n1")}))
    seen = replace(at(0), shared={"n1": SharedNode(8, Part(free, 0), Part(0, 0))})
    assert maintain(mine, seen) == [Hold((FIRST,), one) for one in why]


def test_nodes_are_left_in_one_request_and_others_are_not() -> None:
    mine = view(ON_N1, "running n2", "running n3", "ending n1")
    assert leave(mine, {"n1", "n3", "n9"}, "why") == [Shrink((FIRST, ANCHOR), "why")]
    assert leave(mine, {"n9"}, "why") == []


@cases(
    "mine, free, count, onto",
    where_one_ended=(ended_well(*LEFT), "n2 n3", 1, "n2"),
    where_two_did=(ended_well(*LEFT), "n1 n2 n3", 2, "n1 n2"),
    not_elsewhere=(ended_well(*LEFT), "n3", 0, ""),
    not_beside_one_that_failed=(ended_well(*LEFT, failed(5, "n1")), "n1", 0, ""),
    not_of_who_is_given_up=(ended_well(*LEFT, over="why"), "n1", 0, ""),
    not_of_who_was_cancelled=(ended_well(*LEFT, cancelled_s=NOW_S + 1), "n1", 0, ""),
    not_where_very_many_are_left=(ended_well(*MANY_LEFT), "n1", 0, ""),
)
def test_what_a_finished_trainer_has_left_starts_to_end_well_too(
    mine: TrainerView, free: str, count: int, onto: str
) -> None:
    of = snapshot("n1 n2 n3")
    found = complete(mine, room(free, of), of)
    assert len(found) == min(count, 1)
    for grow in found:
        assert (grow.finished, grow.first, grow.nodes) == (True, False, named(onto))
        assert grow.elements == tuple(one.id for one in LEFT[:count])


def test_the_task_that_keeps_the_arrays_id_comes_last() -> None:
    mine, of = ended_well(over="finished", finished_s=NOW_S), snapshot("n1 n2")
    mine = replace(mine, trainer=replace(mine.trainer, anchor=element(2, "held")))
    (grow,) = complete(mine, room("n1 n2", of), of)
    assert (grow.elements, len(grow.nodes), grow.finished) == ((ANCHOR,), 1, True)
    assert (maintain(mine, at(0)), maintain(mine, at(400))) == ([], [TRIM])


@pytest.mark.parametrize(
    "mine", [view(PENDING), view(element(0, "withheld")), let_go(ordinary="n1")]
)
@pytest.mark.parametrize("over", ["finished", "why"])
def test_of_who_is_over_nothing_that_waits_is_forgotten(mine: TrainerView, over: str) -> None:
    assert maintain(replace(mine, state=replace(mine.state, over=over, finished_s=0.0)), at(0))


HOUR, HALF_AN_HOUR = TimeLimit(60, 10), TimeLimit(30, 10)
COURSE = Reservation("course", NOW_S + 1860, NOW_S + 7200, ("n2",))
TWO_HELD = view("held", "held")
ONE_EXCLUDES = view_of(replace(trainer(HELD), demands=Demands(excluded=frozenset({"n3"}))))
GIVEN, GIVEN_ONE = "the plan gives its nodes to others", "the plan gives its node to others"


def grow(tasks: str, onto: str, first: bool = True, limit: TimeLimit = HOUR, **more: Any) -> Grow:
    """The start of a trainer's tasks on some of three nodes."""
    elements = tuple(ElementId(ARRAY, int(task)) for task in tasks.split())
    others = named("n1 n2 n3") - named(onto)
    return Grow(elements, named(onto), others, first=first, limit=limit, **{"new": first} | more)


@cases(
    "mine, target, free, reserved, actions",
    elements_are_let_go_onto_free_nodes_of_the_plan_in_one_request=(
        TWO_HELD, "n1 n2", "n1 n2 n3", (), [grow("0 1", "n1 n2")],
    ),
    a_node_that_another_trainer_still_has_is_waited_for=(TWO_HELD, "n1", "n2 n3", (), []),
    nobody_gets_more_than_it_has_elements=(view(HELD), "n1 n2", "n1 n2", (), [grow("0", "n1")]),
    who_has_something_alive_begins_no_new_rendezvous=(
        view(ON_N1, "held"), "n1 n2", "n2", (), [grow("1", "n2", first=False)],
    ),
    nor_while_one_ends=(view("ending n1", "held"), "n2", "n2", (), [grow("1", "n2", first=False)]),
    where_nodes_are_free_for_less_there_is_a_request_for_each_limit=(
        TWO_HELD, "n1 n2", "n1 n2", (COURSE,),
        [grow("0", "n1"), grow("1", "n2", first=False, limit=HALF_AN_HOUR)],
    ),
    what_its_user_has_excluded_is_said_with_it=(
        ONE_EXCLUDES, "n1", "n1", (), [grow("0", "n1", excluded=frozenset({"n3"}))],
    ),
    those_on_nodes_of_others_are_ended=(view(ON_N1), "", "", (), [Shrink((FIRST,), GIVEN)]),
    those_that_have_not_started_are_held=(let_go(), "", "", (), [Hold((FIRST,), GIVEN_ONE)]),
    who_is_not_in_the_plan_stays_where_it_is=(view(ON_N1), None, "n2", (), []),
)  # fmt: skip
def test_towards_the_plan(
    mine: TrainerView,
    target: str | None,
    free: str,
    reserved: tuple[Reservation, ...],
    actions: list[Action],
) -> None:
    plan = Plan({} if target is None else {str(ARRAY): named(target)}, 0.0, 0.0, "optimal")
    seen = replace(snapshot("n1 n2 n3"), reservations=reserved)
    assert moves_towards(mine, plan, room(free, seen), seen, Settings(operator=True)) == actions


@cases(
    "mine, moves, held",
    that_no_move_uses=(view("delayed", "delayed"), [grow("0", "n1")], [SECOND]),
    of_a_trainer_that_is_finishing=(view("delayed", over="finished"), [], [FIRST]),
    not_of_one_that_is_given_up=(view("delayed", over="why"), [], []),
    not_those_that_are_held=(TWO_HELD, [], []),
)
def test_reclaimed_elements_are_held(
    mine: TrainerView, moves: list[Action], held: list[ElementId]
) -> None:
    assert elements_of(Hold, hold_reclaimed(mine, moves)) == held
