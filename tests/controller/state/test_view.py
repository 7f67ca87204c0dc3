"""Which elements are where, which can be let go, and who has a node that several claim."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView, views_of, without
from bftrainer_slurm.model import Element, ElementId, ElementState, Place
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    element,
    failed,
    places,
    released,
    state_of,
    trainer,
    view,
    view_of,
)

FIRST, SECOND = ElementId(ARRAY, 0), ElementId(ARRAY, 1)
OTHER = ARRAY + 1
HELD, PENDING = element(0, ElementState.HELD), element(0, ElementState.PENDING)
CANCELLED = element(1, ElementState.CANCELLED)


def running(task: int, node: str, since_s: float = NOW_S) -> Element:
    return element(task, ElementState.RUNNING, node, start_s=since_s)


def both(mine: Element, others: Element, ordinary: str = "") -> tuple[TrainerView, TrainerView]:
    """A trainer, and another one."""
    other = replace(others, id=ElementId(OTHER, others.id.task))
    trainers = trainer(mine), replace(trainer(other), array=OTHER)
    known = [(one, state_of(one)) for one in trainers]
    first, second = views_of(known, frozenset(ordinary.split()))
    return first, second


def let_go(*nodes: str, ordinary: str = "") -> TrainerView:
    """A trainer with an element that was let go on one of these nodes, and has not started."""
    mine = trainer(PENDING)
    state = state_of(mine, TrainerState({0: released(*nodes)}))
    (seen,) = views_of([(mine, state)], frozenset(ordinary.split()))
    return seen


def revived(*elements: Element, seconds: float = 5.0) -> TrainerView:
    """A trainer whose first element was brought back so many seconds ago."""
    mine = trainer(*elements)
    before = TrainerState({0: ElementRecord(Phase.REVIVED, NOW_S - seconds)})
    return view_of(mine, before)


def test_an_element_that_runs_is_on_its_node() -> None:
    assert view(running(0, "n1")).placed == {FIRST: Place("n1")}


def test_one_that_is_about_to_start_is_where_it_was_let_go() -> None:
    assert let_go("n1").placed == {FIRST: Place("n1")}


def test_of_several_nodes_a_released_one_is_expected_on_one_that_nobody_has() -> None:
    mine = trainer(running(1, "n1"), PENDING)
    state = state_of(mine, TrainerState({0: released("n1", "n2")}))
    ((placed, surplus),) = [(one.placed, one.surplus) for one in views_of([(mine, state)])]
    assert (placed, surplus) == ({SECOND: Place("n1"), FIRST: Place("n2")}, ())


def test_two_released_ones_are_expected_on_two_nodes() -> None:
    mine = trainer(PENDING, element(1, ElementState.PENDING))
    before = dict.fromkeys((0, 1), released("n1", "n2"))
    assert view_of(mine, TrainerState(before)).placed == {FIRST: Place("n1"), SECOND: Place("n2")}


def test_where_a_released_one_is_expected_it_stays_expected_when_another_is_held() -> None:
    mine = trainer(PENDING, element(1, ElementState.PENDING))
    state = state_of(mine, TrainerState(dict.fromkeys((0, 1), released("n1", "n2"))))
    (before,) = views_of([(mine, state)])
    mine = trainer(HELD, element(1, ElementState.PENDING))
    (after,) = views_of([(mine, state_of(mine, state))], last={ARRAY: before})
    assert after.placed == {SECOND: Place("n2")}


def test_ten_thousand_that_are_let_go_together_are_soon_sorted() -> None:
    many = range(10_000)
    mine = trainer(*(element(task, ElementState.PENDING) for task in many))
    record = released(*(f"n{number}" for number in many))
    state = state_of(mine, TrainerState(dict.fromkeys(many, record)))
    began_s = time.process_time()
    (first,) = views_of([(mine, state)])
    (second,) = views_of([(mine, replace(state))], last={ARRAY: first})
    assert time.process_time() - began_s < 3
    assert len(first.places) == 10_000
    assert first.placed == second.placed


def test_one_that_somebody_else_let_go_is_nowhere() -> None:
    assert view(element(0, ElementState.PENDING, "n1")).placed == {}


@pytest.mark.parametrize("state", [ElementState.ENDING, ElementState.DELAYED])
def test_one_that_ends_or_has_ended_is_on_no_node(state: ElementState) -> None:
    assert view(element(0, state, "n1")).placed == {}


def test_held_elements_are_let_go_before_reclaimed_ones() -> None:
    mine = view(
        element(0, ElementState.DELAYED), element(1, ElementState.HELD), running(2, "n1"), failed(3)
    )
    assert [spare.task for spare in mine.spare] == [1, 0]


def test_an_element_that_has_just_ended_is_not_let_go_yet() -> None:
    before = trainer(running(0, "n1"))
    mine = trainer(element(0, ElementState.DELAYED), element(1, ElementState.HELD))
    known = [(mine, state_of(mine, state_of(before)))]
    (now,) = views_of(known, rested_s=NOW_S - 2)
    (later,) = views_of(known, rested_s=NOW_S)
    assert (now.spare, later.spare) == ((SECOND,), (SECOND, FIRST))


@pytest.mark.parametrize(
    "state", [ElementState.WITHHELD, ElementState.PENDING, ElementState.LOST, ElementState.ENDING]
)
def test_what_an_operator_or_somebody_else_has_decided_upon_is_not_spare(
    state: ElementState,
) -> None:
    assert view(element(0, state)).spare == ()


def test_of_two_elements_on_a_node_the_one_that_was_there_first_keeps_it() -> None:
    mine = view(running(0, "n1", NOW_S), running(1, "n1", NOW_S - 60))
    assert (mine.placed, mine.surplus) == ({SECOND: Place("n1")}, (FIRST,))


def test_of_two_trainers_that_claim_a_node_the_one_that_was_there_first_keeps_it() -> None:
    mine, other = both(running(0, "n1", NOW_S), running(0, "n1", NOW_S - 60))
    assert (mine.placed, mine.surplus) == ({}, (FIRST,))
    assert (other.placed, other.surplus) == ({ElementId(OTHER, 0): Place("n1")}, ())


def test_who_came_at_the_same_time_is_told_apart_all_the_same() -> None:
    mine, other = both(running(0, "n1"), running(0, "n1"))
    assert len(mine.placed) + len(other.placed) == 1


def test_on_a_node_that_an_ordinary_job_has_nothing_is_placed() -> None:
    mine, other = both(running(0, "n1"), running(0, "n2"), ordinary="n1")
    assert (mine.placed, mine.surplus) == ({}, (FIRST,))
    assert other.places == places("n2")


def test_a_released_element_whose_node_an_ordinary_job_took_is_surplus() -> None:
    taken = let_go("n1", ordinary="n1")
    assert (taken.placed, taken.surplus) == ({}, (FIRST,))


def test_while_one_of_its_nodes_is_left_it_is_expected_there() -> None:
    assert let_go("n1", "n2", ordinary="n1").placed == {FIRST: Place("n2")}
    assert let_go("n1", "n2", ordinary="n1 n2").surplus == (FIRST,)


def test_a_released_element_gives_way_to_whoever_runs_on_its_node() -> None:
    mine = trainer(PENDING)
    other = replace(trainer(replace(running(0, "n1"), id=ElementId(OTHER, 0))), array=OTHER)
    first, second = views_of(
        [(mine, state_of(mine, TrainerState({0: released("n1")}))), (other, state_of(other))]
    )
    assert (first.surplus, second.surplus) == ((FIRST,), ())


def test_no_two_trainers_have_the_same_node_whatever_was_let_go_there() -> None:
    mine = trainer(PENDING)
    other = replace(trainer(replace(PENDING, id=ElementId(OTHER, 0))), array=OTHER)
    before = TrainerState({0: released("n1")})
    first, second = views_of([(one, state_of(one, before)) for one in (mine, other)])
    assert not first.places & second.places


def test_a_trainer_is_finishing_once_an_element_has_ended_well() -> None:
    mine = view(element(0, ElementState.COMPLETED), running(1, "n1"))
    assert (mine.finishing, mine.over) == (True, True)


def test_a_trainer_lives_while_anything_of_it_runs_ends_or_is_about_to_start() -> None:
    assert view(running(0, "n1")).live
    assert view(element(0, ElementState.ENDING, "n1")).live
    assert let_go("n1").live
    assert not view(HELD, element(1, ElementState.DELAYED)).live


def test_what_was_brought_back_while_its_owner_cancelled_the_trainer_is_abandoned() -> None:
    assert revived(HELD, CANCELLED).abandoned


def test_that_is_so_once_all_that_ran_has_ended_however_long_that_takes() -> None:
    ending = element(2, ElementState.ENDING, "n2")
    assert not revived(HELD, CANCELLED, ending).abandoned
    assert revived(HELD, CANCELLED, element(2, ElementState.CANCELLED), seconds=45).abandoned


@pytest.mark.parametrize("state", [ElementState.HELD, ElementState.RUNNING, ElementState.WITHHELD])
def test_a_trainer_of_which_something_else_is_left_is_not_abandoned(state: ElementState) -> None:
    assert not revived(HELD, CANCELLED, element(2, state, "n2")).abandoned


def test_nor_is_one_that_is_cancelled_in_part_much_later() -> None:
    assert not revived(HELD, CANCELLED, seconds=600).abandoned
    assert not view(HELD, CANCELLED).abandoned


@pytest.mark.parametrize(("phase", "first"), [(Phase.FAILED, failed(0)), (Phase.REVIVED, HELD)])
def test_nor_is_one_of_which_an_element_was_cancelled_before_all_others_failed(
    phase: Phase, first: Element
) -> None:
    before = {0: ElementRecord(phase, NOW_S - 5), 1: ElementRecord(Phase.DONE, NOW_S - 60)}
    assert not view_of(trainer(first, CANCELLED), TrainerState(before)).abandoned


def test_a_view_can_be_taken_as_if_elements_had_left_already() -> None:
    mine = view(running(0, "n1"), running(1, "n2"))
    assert without(mine, {FIRST}).placed == {SECOND: Place("n2")}
    assert without(mine, {ElementId(OTHER, 0)}) is mine


def test_of_a_cluster_at_rest_the_views_are_the_same_ones() -> None:
    mine = trainer(running(0, "n1"), HELD)
    known = [(mine, state_of(mine))]
    (before,) = views_of(known)
    (after,) = views_of(known, last={ARRAY: before})
    assert after is before


def test_a_node_that_an_ordinary_job_has_is_not_a_trainers_that_has_not_changed() -> None:
    mine = trainer(running(0, "n1"))
    known = [(mine, state_of(mine))]
    (before,) = views_of(known)
    (after,) = views_of(known, frozenset({"n1"}), last={ARRAY: before})
    assert (after.placed, after.surplus) == ({}, (FIRST,))


def test_a_node_that_another_trainer_had_first_is_not_ones_that_has_not_changed() -> None:
    mine, other = trainer(running(0, "n1")), replace(trainer(HELD), array=OTHER)
    known = [(one, state_of(one)) for one in (mine, other)]
    last = {one.array: one for one in views_of(known)}
    earlier = replace(running(0, "n1", NOW_S - 9), id=ElementId(OTHER, 0))
    other = replace(other, elements=(earlier,))
    mine_now, others_now = views_of([known[0], (other, state_of(other))], last=last)
    assert (mine_now.placed, others_now.placed) == ({}, {ElementId(OTHER, 0): Place("n1")})
