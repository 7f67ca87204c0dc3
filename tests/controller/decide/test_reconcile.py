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

OPERATOR = Settings(operator=True)
FIRST, SECOND, THIRD = (ElementId(ARRAY, task) for task in range(3))
HELD, PENDING = element(0, "held"), element(0, "pending")
ON_N1 = element(0, "running n1", start_s=NOW_S)
CANCELLED = element(1, "cancelled")
HOUR = TimeLimit(60, 10)


def at(after_s: float, backfill_s: float | None = None) -> Snapshot:
    """Slurm, so much later."""
    return Snapshot(NOW_S + after_s, configuration=Configuration(backfill_s=backfill_s))


def room(free: str, of: Snapshot) -> Room:
    """These nodes are free."""
    return Room(cluster(of=of), dict.fromkeys(free.split(), 1))


def kept(mine: TrainerView, after_s: float = 0.0) -> list[Action]:
    return maintain(mine, at(after_s))


REVIVED = ElementRecord(Phase.REVIVED, NOW_S)


def let_go(ordinary: str = "", reason: str = "", others: tuple[Element, ...] = ()) -> TrainerView:
    """A trainer whose first element was let go on n1, and has not started."""
    mine = trainer(replace(PENDING, reason=reason), *others)
    state = state_of(mine, TrainerState({0: released("n1")}))
    (seen,) = views_of([(mine, state)], frozenset(ordinary.split()))
    return seen


ANCHOR = ElementId(ARRAY, 2)
ANCHORED = element(2, "held")
TRIM = Trim((ANCHOR,), "all others of its array have ended")


def anchored(*elements: str, over: str | None = None) -> TrainerView:
    """A trainer of at most two nodes with these elements, and the task that never starts."""
    mine = replace(trainer(*elements), record=TrainerRecord(1, 2), anchor=ANCHORED)
    return view_of(mine, replace(state_of(mine), over=over))


@pytest.mark.parametrize(
    ("state", "action"), [("pending", Hold), ("delayed", Hold), ("running", Shrink)]
)
def test_the_task_that_keeps_the_arrays_id_is_held_again_if_somebody_releases_it(
    state: str, action: type[Hold | Shrink]
) -> None:
    mine = replace(trainer("held", "held"), anchor=element(2, state))
    assert kept(view_of(mine)) == [action((ANCHOR,), "it must never start")]


@pytest.mark.parametrize("over", [None, "finished", "given up"])
@pytest.mark.parametrize("others", ["", "completed lost", "cancelled cancelled"])
def test_the_task_that_keeps_the_arrays_id_goes_with_the_last_element(
    others: str, over: str | None
) -> None:
    assert kept(anchored(*others.split(), over=over)) == [TRIM]


def test_the_task_that_keeps_the_arrays_id_stays_while_elements_come_back() -> None:
    assert TRIM not in kept(anchored("failed", "lost"))
    assert TRIM in kept(anchored("failed", "lost", over="given up"))


STRAY, TAKEN = "it was released by somebody else", "its node is taken"
REFUSED = "Slurm does not start it there"
LATER = element(1, "running n1", start_s=NOW_S + 1)
UNLAUNCHED = element(0, "failed n1", exit_status=1, start_s=NOW_S, end_s=NOW_S)
DONE = (element(1, "completed"), element(2, "running n3"))
LAST_HELD = element(1, "held")
LEFT = tuple(element(task, "held") for task in (2, 3, 4))
MANY_LEFT = tuple(element(task, "held") for task in range(2, 70))


def ended_well(*left: Element, **state: object) -> TrainerView:
    """A trainer that has just finished, on n1 and n2, with these elements left."""
    return view("completed n1", "completed n2", *left, **state)


def cancel(*left: Element) -> Cancel:
    """The end of a finished trainer with these elements left."""
    return Cancel(tuple(one.id for one in left), "finished")


@cases(
    "mine, after_s, actions",
    nothing_what_runs_waits_or_has_ended_well=(view(ON_N1, "held", "lost n2", "withheld"), 0, []),
    one_that_the_controller_did_not_let_go=(view(PENDING), 0, [Hold((FIRST,), STRAY)]),
    one_whose_node_went_to_an_ordinary_job=(let_go(ordinary="n1"), 0, [Hold((FIRST,), TAKEN)]),
    one_that_is_unfit=(let_go(reason="BadConstraints"), 0, [Hold((FIRST,), REFUSED)]),
    one_beyond_a_limit=(let_go(reason="AssocMaxJobsLimit"), 0, [Hold((FIRST,), REFUSED)]),
    one_that_depends_on_another=(let_go(reason="Dependency"), 0, [Hold((FIRST,), REFUSED)]),
    one_on_a_node_that_another_one_has=(
        view(ON_N1, LATER), 0, [Shrink((SECOND,), "another element has its node")]
    ),
    one_that_failed_beside_one_that_slurm_has_lost=(
        view(failed(0, "n1"), "lost n2"), 0, [Revive((FIRST,), "failed")]
    ),
    one_that_slurm_could_not_launch=(view(UNLAUNCHED), 0, [Revive((FIRST,), "failed")]),
    nothing_one_that_was_just_brought_back=(view(failed(0), elements={0: REVIVED}), 0, []),
    nothing_what_its_owner_has_cancelled_as_a_whole=(view(failed(0), CANCELLED), 0, []),
    what_was_brought_back_of_a_trainer_that_was_being_cancelled=(
        view(HELD, CANCELLED, elements={0: replace(REVIVED, since_s=NOW_S - 5)}),
        0, [Cancel((FIRST,), "cancelled by its owner")],
    ),
    nothing_what_is_given_up_and_failed=(view(failed(0), over="why"), 0, []),
    what_is_left_of_who_is_given_up=(view(ON_N1, over="why"), 0, [Cancel((FIRST,), "why")]),
    nothing_for_a_while_who_was_cancelled=(
        view(ON_N1, over="why", cancelled_s=NOW_S), 15, []
    ),
    but_then_again=(view(ON_N1, over="why", cancelled_s=NOW_S), 60, [Cancel((FIRST,), "why")]),
    nothing_of_who_is_given_up_is_left=(view("cancelled", over="why"), 120, []),
    one_of_a_finished_trainer_that_has_not_started=(
        let_go(others=DONE), 0, [Hold((FIRST,), "the training has finished")]
    ),
    nothing_as_the_others_of_a_finished_trainer_have_time_to_end=(
        view("completed", "running n1"), 0, []
    ),
    where_they_do_not=(view("completed", "running n1"), 400, [cancel(LATER)]),
    nothing_as_what_it_has_left_waits_for_the_nodes_where_others_ended=(ended_well(*LEFT), 0, []),
    where_these_do_not_come_in_minutes=(ended_well(*LEFT), 400, [cancel(*LEFT)]),
    very_many_that_are_left_at_once=(ended_well(*MANY_LEFT), 0, [cancel(*MANY_LEFT)]),
    those_of_which_slurm_has_forgotten_where_it_ended=(
        view(LAST_HELD, over="finished", finished_s=NOW_S), 0, [cancel(LAST_HELD)]
    ),
    nothing_a_finished_trainer_with_nothing_left=(view("completed"), 400, []),
)  # fmt: skip
def test_needs(mine: TrainerView, after_s: float, actions: list[Action]) -> None:
    assert kept(mine, after_s) == actions


def test_an_element_that_does_not_start_in_time_is_held_and_its_node_is_told() -> None:
    assert kept(let_go(), after_s=80) == late_nodes(let_go(), at(80)) == []
    assert kept(let_go(), after_s=100) == [Hold((FIRST,), "it has not started")]
    assert late_nodes(let_go(), at(100)) == ["n1"]


@cases(
    "settings, last_pass",
    a_pass_that_ended_before_them=({}, BackfillPass(NOW_S, active=False, tried=500, left=3)),
    a_limit_for_a_users_jobs=({"backfill_of_user": 20}, None),
)
def test_no_node_is_blamed_for_an_element_that_no_pass_may_have_tried(
    settings: dict[str, Any], last_pass: BackfillPass | None
) -> None:
    seen = replace(at(100), configuration=Configuration(**settings), last_pass=last_pass)
    queue = replace(seen.queue, waiting=(WaitingJob(9, "main", 1),))
    assert late_nodes(let_go(), replace(seen, queue=queue)) == []


def test_so_is_one_of_a_part_for_which_ordinary_jobs_leave_too_few_gpus() -> None:
    here = "n1"
    plain = replace(trainer(replace(PENDING, gpus=2)), demands=Demands(gpus=2))
    letting_go = ElementRecord(Phase.RELEASED, NOW_S, targets=frozenset({here}))
    (mine,) = views_of([(plain, state_of(plain, TrainerState({0: letting_go})))])
    assert mine.placed == {FIRST: here}

    def holds(free: int) -> list[Action]:
        seen = replace(at(0), shared={"n1": SharedNode(8, Part(free, 0), Part(0, 0))})
        return maintain(mine, seen)

    assert (holds(2), holds(1)) == ([], [Hold((FIRST,), "its node is taken")])


def test_where_backfill_comes_seldom_an_element_may_take_longer() -> None:
    def is_late(after_s: float, backfill_s: float) -> bool:
        return bool(late_nodes(let_go(), at(after_s, backfill_s)))

    assert (is_late(90, 30), is_late(91, 30)) == (False, True)
    assert (is_late(360, 120), is_late(361, 120)) == (False, True)


def test_such_a_node_is_nobodys_fault_however_late_it_is() -> None:
    assert late_nodes(let_go(ordinary="n1"), at(100)) == []


@pytest.mark.parametrize("reason", ["None", "Resources", "Priority", "ReqNodeNotAvail", "Prolog"])
def test_an_element_that_waits_for_its_node_is_left_to_wait(reason: str) -> None:
    assert kept(let_go(reason=reason)) == []


@pytest.mark.parametrize("ordinary", ["", "n1"])
@pytest.mark.parametrize("reason", ["", "BadConstraints"])
@pytest.mark.parametrize("after_s", [0.0, 100.0])
def test_no_element_is_held_twice_at_once(ordinary: str, reason: str, after_s: float) -> None:
    ids = elements_of(Hold, kept(let_go(ordinary, reason), after_s))
    assert len(ids) == len(set(ids))


def test_nodes_are_left_in_one_request_and_others_are_not() -> None:
    mine = view(ON_N1, "running n2", "running n3", "ending n1")
    assert leave(mine, {"n1", "n3", "n9"}, "why") == [Shrink((FIRST, THIRD), "why")]
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
    mine = ended_well(over="finished", finished_s=NOW_S)
    mine = replace(mine, trainer=replace(mine.trainer, anchor=ANCHORED))
    of = snapshot("n1 n2")
    (grow,) = complete(mine, room("n1 n2", of), of)
    assert (grow.elements, len(grow.nodes), grow.finished) == ((ANCHOR,), 1, True)
    for state in ("held", "pending", "running"):
        waits = replace(mine.trainer, anchor=element(2, state))
        assert kept(replace(mine, trainer=waits)) == []
    assert kept(mine, after_s=400) == [TRIM]


@pytest.mark.parametrize(
    "mine", [view(PENDING), view(element(0, "withheld")), let_go(ordinary="n1")]
)
@pytest.mark.parametrize("over", ["finished", "why"])
def test_of_who_is_over_nothing_that_waits_is_forgotten(mine: TrainerView, over: str) -> None:
    assert kept(replace(mine, state=replace(mine.state, over=over, finished_s=0.0))) != []


def moves(
    mine: TrainerView, target: str, free: str, reserved: tuple[Reservation, ...] = ()
) -> list[Any]:
    """Towards these of three nodes."""
    plan = Plan({str(ARRAY): named(target)}, 0.0, 0.0, "optimal")
    seen = replace(snapshot("n1 n2 n3"), reservations=reserved)
    return moves_towards(mine, plan, room(free, seen), seen, OPERATOR)


TWO_HELD = view("held", "held")


N1, N2, N3 = (named(name) for name in ("n1", "n2", "n3"))
GIVEN, GIVEN_ONE = "the plan gives its nodes to others", "the plan gives its node to others"


@cases(
    "mine, target, free, actions",
    elements_are_let_go_onto_free_nodes_of_the_plan_in_one_request=(
        TWO_HELD, "n1 n2", "n1 n2 n3",
        [Grow((FIRST, SECOND), N1 | N2, frozenset({"n3"}), first=True, limit=HOUR, new=True)],
    ),
    a_node_that_another_trainer_still_has_is_waited_for=(TWO_HELD, "n1", "n2 n3", []),
    nobody_gets_more_nodes_than_it_has_elements_to_let_go=(
        view(HELD), "n1 n2", "n1 n2",
        [Grow((FIRST,), N1, frozenset({"n2", "n3"}), first=True, limit=HOUR, new=True)],
    ),
    who_has_something_alive_begins_no_new_rendezvous=(
        view(ON_N1, "held"), "n1 n2", "n2",
        [Grow((SECOND,), N2, frozenset({"n1", "n3"}), first=False, limit=HOUR)],
    ),
    elements_on_nodes_that_the_plan_gives_to_others_are_ended=(
        view(ON_N1), "", "", [Shrink((FIRST,), GIVEN)]
    ),
    those_that_have_not_started_yet_are_only_held=(let_go(), "", "", [Hold((FIRST,), GIVEN_ONE)]),
)  # fmt: skip
def test_towards_the_plan(mine: TrainerView, target: str, free: str, actions: list[Action]) -> None:
    assert moves(mine, target, free) == actions


def test_where_nodes_are_free_for_less_there_is_a_request_for_each_limit() -> None:
    course = Reservation("course", NOW_S + 1860, NOW_S + 7200, ("n2",))
    found = moves(TWO_HELD, "n1 n2", free="n1 n2", reserved=(course,))
    assert [(one.elements, one.nodes, one.limit, one.first) for one in found] == [
        ((FIRST,), N1, HOUR, True),
        ((SECOND,), N2, TimeLimit(30, 10), False),
    ]


def test_what_its_user_has_excluded_is_said_with_it() -> None:
    of = replace(trainer(HELD), demands=Demands(excluded=frozenset({"n3"})))
    (action,) = moves(view_of(of), "n1", free="n1")
    assert action.excluded == {"n3"}


def test_who_is_not_in_the_plan_stays_where_it_is() -> None:
    plan = Plan({}, 0.0, 0.0, "optimal")
    assert moves_towards(view(ON_N1), plan, room("", at(0)), at(0), OPERATOR) == []


RECLAIMED = view("delayed", "delayed")


def test_reclaimed_elements_that_no_move_uses_are_held() -> None:
    grow = Grow((FIRST,), named("n1"), frozenset(), first=False)
    assert elements_of(Hold, hold_reclaimed(RECLAIMED, [grow])) == [SECOND]
    assert elements_of(Hold, hold_reclaimed(RECLAIMED, [])) == [FIRST, SECOND]
    assert hold_reclaimed(TWO_HELD, []) == []


def test_so_are_those_of_a_trainer_that_is_finishing_but_not_of_one_that_is_given_up() -> None:
    for over, ids in (("finished", [FIRST, SECOND]), ("why", [])):
        mine = replace(RECLAIMED, state=replace(RECLAIMED.state, over=over))
        assert elements_of(Hold, hold_reclaimed(mine, [])) == ids
