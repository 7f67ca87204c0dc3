"""What elements need by their phase, and the moves towards a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    Grow,
    Hold,
    Revive,
    Shrink,
    Trim,
)
from bftrainer_slurm.controller.decide.reconcile import (
    complete,
    hold_reclaimed,
    keep_up,
    late_nodes,
    leave,
    towards,
)
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView, views_of
from bftrainer_slurm.model import (
    Configuration,
    Demands,
    Element,
    ElementId,
    ElementState,
    Place,
    Reservation,
    TimeLimit,
)
from bftrainer_slurm.planner.problem import Plan
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    element,
    failed,
    node,
    places,
    released,
    snapshot,
    state_of,
    trainer,
    view,
    view_of,
)

OPERATOR = Settings(operator=True)
FIRST, SECOND, THIRD = (ElementId(ARRAY, task) for task in range(3))
HELD, PENDING = element(0, ElementState.HELD), element(0, ElementState.PENDING)
ON_N1 = element(0, ElementState.RUNNING, "n1", start_s=NOW_S)
CANCELLED = element(1, ElementState.CANCELLED)
HOUR = TimeLimit(60, 10)


def at(after_s: float, backfill_s: float | None = None) -> Snapshot:
    """Slurm, so much later."""
    return Snapshot(NOW_S + after_s, configuration=Configuration(backfill_s=backfill_s))


def kept(mine: TrainerView, after_s: float = 0.0) -> list[Action]:
    return keep_up(mine, at(after_s), OPERATOR)


def let_go(ordinary: str = "", reason: str = "", others: tuple[Element, ...] = ()) -> TrainerView:
    """A trainer whose first element was let go on n1, and has not started."""
    mine = trainer(replace(PENDING, reason=reason), *others)
    state = state_of(mine, TrainerState({0: released("n1")}))
    (seen,) = views_of([(mine, state)], frozenset(ordinary.split()))
    return seen


def held(actions: Iterable[Action]) -> list[ElementId]:
    return [id_ for action in actions if isinstance(action, Hold) for id_ in action.elements]


ANCHOR = ElementId(ARRAY, 2)
ANCHORED = Element(ANCHOR, ElementState.HELD)
HELD_ONE = element(1, ElementState.HELD)


def anchored(*elements: Element, over: str | None = None) -> TrainerView:
    """A trainer of at most two nodes with these elements, and the task that never starts."""
    mine = replace(trainer(*elements), record=TrainerRecord(1, 2), anchor=ANCHORED)
    return view_of(mine, replace(state_of(mine), over=over))


@pytest.mark.parametrize(
    ("state", "action"),
    [(ElementState.PENDING, Hold), (ElementState.DELAYED, Hold), (ElementState.RUNNING, Shrink)],
)
def test_the_task_that_keeps_the_arrays_id_is_held_again_if_somebody_releases_it(
    state: ElementState, action: type[Hold | Shrink]
) -> None:
    mine = replace(trainer(HELD, HELD_ONE), anchor=replace(ANCHORED, state=state))
    assert kept(view_of(mine)) == [action((ANCHOR,), "it is never to start")]


@pytest.mark.parametrize("over", [None, "finished", "given up"])
@pytest.mark.parametrize(
    "others",
    [
        (),
        (element(0, ElementState.COMPLETED), element(1, ElementState.LOST)),
        (element(0, ElementState.CANCELLED), element(1, ElementState.CANCELLED)),
    ],
)
def test_the_task_that_keeps_the_arrays_id_goes_with_the_last_element(
    others: tuple[Element, ...], over: str | None
) -> None:
    assert kept(anchored(*others, over=over)) == [
        Trim((ANCHOR,), "all others of its array have ended")
    ]


def test_the_task_that_keeps_the_arrays_id_stays_while_elements_come_back() -> None:
    left = element(0, ElementState.FAILED), element(1, ElementState.LOST)
    assert not any(isinstance(one, Trim) for one in kept(anchored(*left)))
    assert any(isinstance(one, Trim) for one in kept(anchored(*left, over="given up")))


def test_what_runs_waits_or_has_ended_well_needs_nothing() -> None:
    lost = element(2, ElementState.LOST, "n2")
    withheld = element(3, ElementState.WITHHELD)
    assert kept(view(ON_N1, element(1, ElementState.HELD), lost, withheld)) == []


def test_a_pending_element_that_the_controller_did_not_let_go_is_held() -> None:
    assert kept(view(PENDING)) == [Hold((FIRST,), "it was released by somebody else")]


def test_one_that_it_let_go_has_time_to_start() -> None:
    assert kept(let_go(), after_s=80) == []
    assert late_nodes(let_go(), at(80), OPERATOR) == []


def test_an_element_that_does_not_start_in_time_is_held_and_its_node_is_told() -> None:
    assert kept(let_go(), after_s=100) == [Hold((FIRST,), "it has not started")]
    assert late_nodes(let_go(), at(100), OPERATOR) == ["n1"]


def test_an_element_whose_node_went_to_an_ordinary_job_is_held_at_once() -> None:
    assert kept(let_go(ordinary="n1")) == [Hold((FIRST,), "its node is taken")]


def test_so_is_one_of_a_part_for_which_ordinary_jobs_leave_too_few_gpus() -> None:
    here = Place("n1", ARRAY)
    plain = replace(trainer(replace(PENDING, gpus=2)), demands=Demands(gpus=2))
    letting_go = ElementRecord(Phase.RELEASED, NOW_S, targets=frozenset({here}))
    (mine,) = views_of([(plain, state_of(plain, TrainerState({0: letting_go})))])
    assert mine.placed == {FIRST: here}

    def holds(free: int) -> list[Action]:
        seen = replace(at(0), share=True, shared={"n1": SharedNode(8, free, 0, 0.0)})
        return keep_up(mine, seen, OPERATOR)

    assert (holds(2), holds(1)) == ([], [Hold((FIRST,), "its node is taken")])


def test_where_backfill_comes_seldom_an_element_may_take_longer() -> None:
    def is_late(after_s: float, backfill_s: float) -> bool:
        return bool(late_nodes(let_go(), at(after_s, backfill_s), OPERATOR))

    assert (is_late(90, 30), is_late(91, 30)) == (False, True)
    assert (is_late(360, 120), is_late(361, 120)) == (False, True)


def test_such_a_node_is_nobodys_fault_however_late_it_is() -> None:
    assert late_nodes(let_go(ordinary="n1"), at(100), OPERATOR) == []


@pytest.mark.parametrize("reason", ["BadConstraints", "AssocMaxJobsLimit", "Dependency"])
def test_an_element_that_slurm_does_not_start_there_is_held(reason: str) -> None:
    assert kept(let_go(reason=reason)) == [Hold((FIRST,), "Slurm does not start it there")]


@pytest.mark.parametrize("reason", ["None", "Resources", "Priority", "ReqNodeNotAvail", "Prolog"])
def test_an_element_that_waits_for_its_node_is_left_to_wait(reason: str) -> None:
    assert kept(let_go(reason=reason)) == []


@pytest.mark.parametrize("ordinary", ["", "n1"])
@pytest.mark.parametrize("reason", ["", "BadConstraints"])
@pytest.mark.parametrize("after_s", [0.0, 100.0])
def test_no_element_is_held_twice_at_once(ordinary: str, reason: str, after_s: float) -> None:
    ids = held(kept(let_go(ordinary, reason), after_s))
    assert len(ids) == len(set(ids))


def test_an_element_on_a_node_that_another_one_has_is_ended() -> None:
    later = element(1, ElementState.RUNNING, "n1", start_s=NOW_S + 1)
    assert kept(view(ON_N1, later)) == [Shrink((SECOND,), "its node is another element's")]


def test_a_failed_element_is_brought_back_beside_one_that_slurm_has_lost() -> None:
    lost = element(1, ElementState.LOST, "n2")
    assert kept(view(failed(0, "n1"), lost)) == [Revive((FIRST,), "failed")]


def test_so_is_one_that_slurm_could_not_launch() -> None:
    at_once = element(0, ElementState.FAILED, "n1", exit_status=1, start_s=NOW_S, end_s=NOW_S)
    assert kept(view(at_once)) == [Revive((FIRST,), "failed")]


def test_one_that_was_just_brought_back_is_not_brought_back_again() -> None:
    assert kept(view(failed(0), elements={0: ElementRecord(Phase.REVIVED, NOW_S)})) == []


def test_what_its_owner_has_cancelled_as_a_whole_is_not_brought_back() -> None:
    assert kept(view(failed(0), CANCELLED)) == []


def test_what_was_brought_back_of_a_trainer_that_was_being_cancelled_is_cancelled_too() -> None:
    revived = view(HELD, CANCELLED, elements={0: ElementRecord(Phase.REVIVED, NOW_S - 5)})
    assert kept(revived) == [Cancel(ARRAY, "cancelled by its owner")]


def test_nodes_are_left_in_one_request_and_others_are_not() -> None:
    mine = view(
        ON_N1,
        element(1, ElementState.RUNNING, "n2"),
        element(2, ElementState.RUNNING, "n3"),
        element(3, ElementState.ENDING, "n1"),
    )
    assert leave(mine, {"n1", "n3", "n9"}, "why") == [Shrink((FIRST, THIRD), "why")]
    assert leave(mine, {"n9"}, "why") == []


def ended_well(*left: Element, **state: object) -> TrainerView:
    """A trainer that has just finished, on n1 and n2, with these elements left."""
    completed = (element(task, ElementState.COMPLETED, f"n{task + 1}") for task in (0, 1))
    return view(*completed, *left, **state)


LEFT = tuple(element(task, ElementState.HELD) for task in (2, 3, 4))


def test_what_a_finished_trainer_has_left_starts_where_others_ended_to_end_well_too() -> None:
    of = replace(at(0), nodes=tuple(map(node, ("n1", "n2", "n3"))))
    (grow,) = complete(ended_well(*LEFT), places("n2 n3"), of)
    assert isinstance(grow, Grow)
    assert grow.finished
    assert (grow.elements, grow.places, grow.first) == ((THIRD,), places("n2"), False)
    failed_too = ended_well(*LEFT, failed(5, "n1"))
    assert complete(failed_too, places("n1"), of) == []
    (both,) = complete(ended_well(*LEFT), places("n1 n2 n3"), of)
    assert isinstance(both, Grow)
    assert (len(both.elements), both.places) == (2, places("n1 n2"))
    assert complete(ended_well(*LEFT), places("n3"), of) == []
    assert complete(ended_well(*LEFT, over="why"), places("n1"), of) == []


def test_the_task_that_keeps_the_arrays_id_comes_last() -> None:
    mine = ended_well(over="finished", finished_s=NOW_S)
    mine = replace(mine, trainer=replace(mine.trainer, anchor=ANCHORED))
    (grow,) = complete(mine, places("n1 n2"), at(0))
    assert isinstance(grow, Grow)
    assert (grow.elements, len(grow.places), grow.finished) == ((ANCHOR,), 1, True)
    for state in (ElementState.HELD, ElementState.PENDING, ElementState.RUNNING):
        waits = replace(mine.trainer, anchor=replace(ANCHORED, state=state))
        assert kept(replace(mine, trainer=waits)) == []
    assert kept(mine, after_s=400) == [Trim((ANCHOR,), "all others of its array have ended")]


def test_it_waits_some_minutes_for_these_nodes_and_is_cancelled_then() -> None:
    assert kept(ended_well(*LEFT)) == []
    assert kept(ended_well(*LEFT), after_s=400) == [Cancel(ARRAY, "finished")]
    heard = ended_well(*LEFT, cancelled_s=NOW_S + 1)
    assert complete(heard, places("n1"), at(0)) == []


def test_a_finished_trainer_with_very_many_elements_left_is_cancelled_at_once() -> None:
    many = ended_well(*(element(task, ElementState.HELD) for task in range(2, 70)))
    assert kept(many) == [Cancel(ARRAY, "finished")]
    assert complete(many, places("n1"), at(0)) == []


def test_so_is_one_of_which_slurm_has_forgotten_where_it_ended() -> None:
    mine = view(element(1, ElementState.HELD), over="finished", finished_s=NOW_S)
    assert kept(mine) == [Cancel(ARRAY, "finished")]


def test_the_others_have_time_to_end_before() -> None:
    mine = view(element(0, ElementState.COMPLETED), element(1, ElementState.RUNNING, "n1"))
    assert kept(mine) == []
    assert kept(mine, after_s=400) == [Cancel(ARRAY, "finished")]


def test_an_element_of_a_finished_trainer_that_has_not_started_never_does() -> None:
    done, running = element(1, ElementState.COMPLETED), element(2, ElementState.RUNNING, "n3")
    mine = let_go(others=(done, running))
    assert kept(mine) == [Hold((FIRST,), "the training has finished")]


def test_a_finished_trainer_with_nothing_left_is_left_alone() -> None:
    assert kept(view(element(0, ElementState.COMPLETED)), after_s=400) == []


def test_what_is_left_of_a_trainer_that_is_given_up_is_cancelled_until_nothing_is() -> None:
    mine = view(ON_N1, over="why")
    assert kept(mine) == [Cancel(ARRAY, "why")]
    heard = replace(mine, state=replace(mine.state, cancelled_s=NOW_S))
    assert kept(heard, after_s=15) == []
    assert kept(heard, after_s=60) == [Cancel(ARRAY, "why")]
    assert kept(view(element(0, ElementState.CANCELLED), over="why"), after_s=120) == []


@pytest.mark.parametrize(
    "mine", [view(PENDING), view(element(0, ElementState.WITHHELD)), let_go(ordinary="n1")]
)
@pytest.mark.parametrize("over", ["finished", "why"])
def test_of_who_is_over_nothing_that_waits_is_forgotten(mine: TrainerView, over: str) -> None:
    assert kept(replace(mine, state=replace(mine.state, over=over, finished_s=0.0))) != []


def test_of_who_is_given_up_nothing_is_brought_back() -> None:
    assert kept(view(failed(0), over="why")) == []


def moves(
    mine: TrainerView, target: str, free: str, reserved: tuple[Reservation, ...] = ()
) -> list[Action]:
    """Towards these of three nodes."""
    names = frozenset(place.name for place in places(target))
    plan = Plan({str(ARRAY): names}, 0.0, 0.0, "optimal")
    by_name = {place.name: place for place in places(free)}
    seen = replace(snapshot((node("n1"), node("n2"), node("n3"))), reservations=reserved)
    return towards(mine, plan, by_name, seen, OPERATOR)


TWO_HELD = view(HELD, element(1, ElementState.HELD))


def test_elements_are_let_go_onto_free_nodes_of_the_plan_in_one_request() -> None:
    (action,) = moves(TWO_HELD, "n1 n2", free="n1 n2 n3")
    onto, others = places("n1 n2"), frozenset({"n3"})
    assert action == Grow((FIRST, SECOND), onto, others, first=True, limit=HOUR, new=True)


def test_where_nodes_are_free_for_less_there_is_a_request_for_each_limit() -> None:
    course = Reservation("course", NOW_S + 1860, NOW_S + 7200, ("n2",))
    first, second = moves(TWO_HELD, "n1 n2", free="n1 n2", reserved=(course,))
    assert isinstance(first, Grow)
    assert isinstance(second, Grow)
    assert (first.elements, first.places, first.limit, first.first) == (
        (FIRST,), places("n1"), HOUR, True,
    )  # fmt: skip
    assert (second.elements, second.places, second.limit, second.first) == (
        (SECOND,), places("n2"), TimeLimit(30, 10), False,
    )  # fmt: skip


def test_what_its_user_has_excluded_is_said_with_it() -> None:
    of = replace(trainer(HELD), demands=Demands(excluded=frozenset({"n3"})))
    (action,) = moves(view_of(of), "n1", free="n1")
    assert isinstance(action, Grow)
    assert action.excluded == {"n3"}


def test_who_has_something_alive_begins_no_new_rendezvous() -> None:
    (action,) = moves(view(ON_N1, element(1, ElementState.HELD)), "n1 n2", free="n2")
    assert isinstance(action, Grow)
    assert not action.first


def test_a_node_that_another_trainer_still_has_is_waited_for() -> None:
    assert moves(TWO_HELD, "n1", free="n2 n3") == []


def test_nobody_gets_more_nodes_than_it_has_elements_to_let_go() -> None:
    (action,) = moves(view(HELD), "n1 n2", free="n1 n2")
    assert isinstance(action, Grow)
    assert (action.elements, action.places) == ((FIRST,), places("n1"))


def test_elements_on_nodes_that_the_plan_gives_to_others_are_ended() -> None:
    why = "the plan gives its nodes to others"
    assert moves(view(ON_N1), "", free="") == [Shrink((FIRST,), why)]


def test_those_that_have_not_started_yet_are_only_held() -> None:
    (action,) = moves(let_go(), "", free="")
    assert action == Hold((FIRST,), "the plan gives its node to others")


def test_who_is_not_in_the_plan_stays_where_it_is() -> None:
    plan = Plan({}, 0.0, 0.0, "optimal")
    assert towards(view(ON_N1), plan, {}, at(0), OPERATOR) == []


RECLAIMED = view(element(0, ElementState.DELAYED), element(1, ElementState.DELAYED))


def test_reclaimed_elements_that_no_move_uses_are_held() -> None:
    grow = Grow((FIRST,), places("n1"), frozenset(), first=False)
    assert held(hold_reclaimed(RECLAIMED, [grow])) == [SECOND]
    assert held(hold_reclaimed(RECLAIMED, [])) == [FIRST, SECOND]
    assert hold_reclaimed(TWO_HELD, []) == []


def test_so_are_those_of_a_trainer_that_is_finishing_but_not_of_one_that_is_given_up() -> None:
    for over, ids in (("finished", [FIRST, SECOND]), ("why", [])):
        mine = replace(RECLAIMED, state=replace(RECLAIMED.state, over=over))
        assert held(hold_reclaimed(mine, [])) == ids
