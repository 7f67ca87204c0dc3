"""Which elements are where, which can be let go, and who has a node that several claim.

Until when trainers stand still whose nodes are others than before.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView, note_rescale, views_of, without
from bftrainer_slurm.model import Element, ElementId
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    element,
    failed,
    named,
    released,
    state_of,
    trainer,
    view,
    view_of,
)

FIRST, SECOND = ElementId(ARRAY, 0), ElementId(ARRAY, 1)
OTHER = ARRAY + 1
HELD, PENDING = element(0, "held"), element(0, "pending")
CANCELLED = element(1, "cancelled")


def running(task: int, node: str, since_s: float = NOW_S) -> Element:
    return element(task, "running", node, start_s=since_s)


def both(mine: Element, others: Element, ordinary: str = "") -> tuple[TrainerView, TrainerView]:
    """A trainer, and another one."""
    trainers = trainer(mine), trainer(others, array=OTHER)
    known = [(one, state_of(one)) for one in trainers]
    first, second = views_of(known, frozenset(ordinary.split()))
    return first, second


def let_go(*nodes: str, ordinary: str = "") -> TrainerView:
    """A trainer with an element that was let go on one of these nodes, and has not started."""
    mine = trainer(PENDING)
    state = state_of(mine, TrainerState({0: released(*nodes)}))
    (seen,) = views_of([(mine, state)], frozenset(ordinary.split()))
    return seen


def revived(*elements: Element | str, seconds: float = 5.0) -> TrainerView:
    """A trainer whose first element was brought back so many seconds ago."""
    mine = trainer(*elements)
    before = TrainerState({0: ElementRecord(Phase.REVIVED, NOW_S - seconds)})
    return view_of(mine, before)


@cases(
    "mine, placed, surplus",
    one_that_runs_is_on_its_node=(view("running n1"), {0: "n1"}, ()),
    one_that_is_about_to_start_is_where_it_was_let_go=(let_go("n1"), {0: "n1"}, ()),
    of_several_nodes_a_released_one_is_expected_on_one_that_nobody_has=(
        view("pending", "running n1", elements={0: released("n1", "n2")}), {0: "n2", 1: "n1"}, ()
    ),
    one_that_somebody_else_let_go_is_nowhere=(view("pending n1"), {}, ()),
    one_that_ends_is_on_no_node=(view("ending n1"), {}, ()),
    one_that_has_ended_is_on_none=(view("delayed n1"), {}, ()),
    of_two_on_a_node_the_one_that_was_there_first_keeps_it=(
        view(running(0, "n1", NOW_S), running(1, "n1", NOW_S - 60)), {1: "n1"}, (FIRST,)
    ),
    a_released_one_whose_node_an_ordinary_job_took_is_surplus=(
        let_go("n1", ordinary="n1"), {}, (FIRST,)
    ),
    while_one_of_its_nodes_is_left_it_is_expected_there=(
        let_go("n1", "n2", ordinary="n1"), {0: "n2"}, ()
    ),
    where_none_is_left_it_is_surplus=(let_go("n1", "n2", ordinary="n1 n2"), {}, (FIRST,)),
)  # fmt: skip
def test_of_elements(
    mine: TrainerView, placed: dict[int, str], surplus: tuple[ElementId, ...]
) -> None:
    assert {id_.task: node for id_, node in mine.placed.items()} == placed
    assert mine.surplus == surplus


def test_two_released_ones_are_expected_on_two_nodes_also_when_one_is_held_again() -> None:
    mine = trainer("pending", "pending")
    state = state_of(mine, TrainerState(dict.fromkeys((0, 1), released("n1", "n2"))))
    (before,) = views_of([(mine, state)])
    assert before.placed == {FIRST: "n1", SECOND: "n2"}
    mine = trainer("held", "pending")
    (after,) = views_of([(mine, state_of(mine, state))], last={ARRAY: before})
    assert after.placed == {SECOND: "n2"}, "where it was expected"


def test_ten_thousand_that_are_let_go_together_are_soon_sorted() -> None:
    many = range(10_000)
    mine = trainer(*["pending"] * len(many))
    record = released(*(f"n{number}" for number in many))
    state = state_of(mine, TrainerState(dict.fromkeys(many, record)))
    began_s = time.process_time()
    (first,) = views_of([(mine, state)])
    (second,) = views_of([(mine, replace(state))], last={ARRAY: first})
    assert time.process_time() - began_s < 3
    assert len(first.nodes) == 10_000
    assert first.placed == second.placed


def test_held_elements_are_let_go_before_reclaimed_ones() -> None:
    mine = view("delayed", "held", "running n1", "failed")
    assert [spare.task for spare in mine.spare] == [1, 0]


def test_an_element_that_has_just_ended_is_not_let_go_yet() -> None:
    before, mine = trainer(running(0, "n1")), trainer("delayed", "held")
    known = [(mine, state_of(mine, state_of(before)))]
    (now,) = views_of(known, rested_s=NOW_S - 2)
    (later,) = views_of(known, rested_s=NOW_S)
    assert (now.spare, later.spare) == ((SECOND,), (SECOND, FIRST))


@pytest.mark.parametrize("said", ["withheld", "pending", "lost", "ending"])
def test_what_an_operator_or_somebody_else_has_decided_upon_is_not_spare(said: str) -> None:
    assert view(said).spare == ()


def test_of_two_trainers_that_claim_a_node_the_one_that_was_there_first_keeps_it() -> None:
    mine, other = both(running(0, "n1", NOW_S), running(0, "n1", NOW_S - 60))
    assert (mine.placed, mine.surplus) == ({}, (FIRST,))
    assert (other.placed, other.surplus) == ({ElementId(OTHER, 0): "n1"}, ())


def test_who_came_at_the_same_time_is_told_apart_all_the_same() -> None:
    mine, other = both(running(0, "n1"), running(0, "n1"))
    assert len(mine.placed) + len(other.placed) == 1


def test_on_a_node_that_an_ordinary_job_has_nothing_is_placed() -> None:
    mine, other = both(running(0, "n1"), running(0, "n2"), ordinary="n1")
    assert (mine.placed, mine.surplus) == ({}, (FIRST,))
    assert other.nodes == named("n2")


def test_a_released_element_gives_way_to_whoever_runs_on_its_node() -> None:
    mine, other = trainer("pending"), trainer("running n1", array=OTHER)
    let_go = state_of(mine, TrainerState({0: released("n1")}))
    first, second = views_of([(mine, let_go), (other, state_of(other))])
    assert (first.surplus, second.surplus) == ((FIRST,), ())


def test_no_two_trainers_have_the_same_node_whatever_was_let_go_there() -> None:
    both = trainer("pending"), trainer("pending", array=OTHER)
    before = TrainerState({0: released("n1")})
    first, second = views_of([(one, state_of(one, before)) for one in both])
    assert not first.nodes & second.nodes


def test_a_trainer_is_finishing_once_an_element_has_ended_well() -> None:
    mine = view(element(0, "completed"), running(1, "n1"))
    assert (mine.finishing, mine.over) == (True, True)


def test_a_trainer_lives_while_anything_of_it_runs_ends_or_is_about_to_start() -> None:
    assert view(running(0, "n1")).live
    assert view(element(0, "ending n1")).live
    assert let_go("n1").live
    assert not view(HELD, element(1, "delayed")).live


@cases(
    "mine, abandoned",
    where_its_owner_cancelled_it_meanwhile=(revived(HELD, CANCELLED), True),
    not_before_all_that_ran_has_ended=(revived(HELD, CANCELLED, "ending n2"), False),
    however_long_that_takes=(revived(HELD, CANCELLED, "cancelled", seconds=45), True),
    not_where_another_is_held=(revived(HELD, CANCELLED, "held"), False),
    not_where_another_runs=(revived(HELD, CANCELLED, "running n2"), False),
    not_where_an_operator_holds_another=(revived(HELD, CANCELLED, "withheld"), False),
    not_where_it_is_cancelled_in_part_much_later=(revived(HELD, CANCELLED, seconds=600), False),
    not_where_it_never_failed=(view(HELD, CANCELLED), False),
)
def test_a_trainer_that_was_brought_back_is_abandoned(mine: TrainerView, abandoned: bool) -> None:
    assert mine.abandoned is abandoned


@pytest.mark.parametrize(("phase", "first"), [(Phase.FAILED, failed(0)), (Phase.REVIVED, HELD)])
def test_one_is_not_of_which_an_element_was_cancelled_before_all_others_failed(
    phase: Phase, first: Element
) -> None:
    before = {0: ElementRecord(phase, NOW_S - 5), 1: ElementRecord(Phase.DONE, NOW_S - 60)}
    assert not view_of(trainer(first, CANCELLED), TrainerState(before)).abandoned


def test_a_view_can_be_taken_as_if_elements_had_left_already() -> None:
    mine = view(running(0, "n1"), running(1, "n2"))
    assert without(mine, {FIRST}).placed == {SECOND: "n2"}
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
    mine, other = trainer(running(0, "n1")), trainer("held", array=OTHER)
    known = [(one, state_of(one)) for one in (mine, other)]
    last = {one.array: one for one in views_of(known)}
    other = trainer(running(0, "n1", NOW_S - 9), array=OTHER)
    mine_now, others_now = views_of([known[0], (other, state_of(other))], last=last)
    assert (mine_now.placed, others_now.placed) == ({}, {ElementId(OTHER, 0): "n1"})


COSTS = 18.0, 12.0  # seconds after it grew, or shrank
ON_N1 = element(0, "running n1", start_s=NOW_S - 60)
ON_N2 = element(1, "running n2", start_s=NOW_S)


def noted(now: TrainerView, *had: str) -> TrainerState:
    return note_rescale(now, named(" ".join(had)), *COSTS, NOW_S)


@cases(
    "now, had, until_s",
    after_it_grew=(view(ON_N1, ON_N2), "n1", NOW_S + 18),
    after_it_shrank=(view(ON_N1), "n1 n2", NOW_S + 12),
    not_for_a_start=(view(ON_N1), "", 0),
    not_where_nothing_changed=(view(ON_N1), "n1", 0),
    not_without_a_node=(view("held"), "n1", 0),
    from_when_the_node_came_not_from_when_it_was_seen=(
        view(ON_N1, replace(ON_N2, start_s=NOW_S - 3)), "n1", NOW_S - 3 + 18
    ),
    as_long_as_for_the_first_of_two_changes=(
        view(ON_N1, paused_until_s=NOW_S + 100), "n1 n2", NOW_S + 100
    ),
)  # fmt: skip
def test_a_trainer_stands_still(now: TrainerView, had: str, until_s: float) -> None:
    assert noted(now, *had.split()).paused_until_s == until_s


def test_nobody_pauses_at_the_first_look_of_a_controller() -> None:
    assert noted(view(ON_N1, ON_N2)).paused_until_s == 0


def test_nodes_that_come_together_are_one_start_also_where_they_come_from_others() -> None:
    first, second = replace(ON_N1, start_s=NOW_S - 3), replace(ON_N2, start_s=NOW_S - 3)
    assert noted(view(first, second), "n1").paused_until_s <= NOW_S
