"""Which elements are where, which can be let go, and who has a node that several claim.

Until when trainers stand still whose nodes are others than before.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView, note_rescale, views_of
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
    a_released_one_whose_node_a_job_took_is_surplus=(let_go("n1", ordinary="n1"), {}, (FIRST,)),
    while_one_is_left_it_is_expected_there=(let_go("n1", "n2", ordinary="n1"), {0: "n2"}, ()),
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
    mine, record = trainer(*["pending"] * len(many)), released(*(f"n{number}" for number in many))
    state = state_of(mine, TrainerState(dict.fromkeys(many, record)))
    began_s = time.process_time()
    (first,) = views_of([(mine, state)])
    (second,) = views_of([(mine, replace(state))], last={ARRAY: first})
    assert time.process_time() - began_s < 3
    assert len(first.nodes) == 10_000 and first.placed == second.placed


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


EARLIER = running(0, "n1", NOW_S - 60)


@cases(
    "mine, other, ordinary, nodes",
    the_one_that_was_there_first_keeps_it=(running(0, "n1"), EARLIER, "", (set(), {"n1"})),
    one_has_it_where_they_came_at_the_same_time=(
        element(0, "running n1"), element(0, "running n1"), "", ({"n1"}, set())
    ),
    on_ones_of_their_own_both_are=(running(0, "n1"), running(0, "n2"), "", ({"n1"}, {"n2"})),
    on_one_that_a_job_has_nothing_is=(running(0, "n1"), running(0, "n2"), "n1", (set(), {"n2"})),
    a_released_one_gives_way_to_whoever_runs_there=(PENDING, running(0, "n1"), "", (set(), {"n1"})),
)  # fmt: skip
def test_of_two_trainers(
    mine: Element, other: Element, ordinary: str, nodes: tuple[set[str], set[str]]
) -> None:
    first, second = trainer(mine), trainer(other, array=OTHER)
    states = state_of(first, TrainerState({0: released("n1")})), state_of(second)
    views = views_of([(first, states[0]), (second, states[1])], frozenset(ordinary.split()))
    assert tuple(one.nodes for one in views) == nodes
    assert views[0].surplus == (() if nodes[0] else (FIRST,))


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


def test_of_a_cluster_at_rest_the_views_are_the_same_ones_while_their_nodes_are_theirs() -> None:
    mine, other = trainer(running(0, "n1"), HELD), trainer("held", array=OTHER)
    known = [(one, state_of(one)) for one in (mine, other)]
    last = {one.array: one for one in views_of(known)}
    assert views_of(known, last=last)[0] is last[ARRAY]
    assert views_of(known, named("n1"), last=last)[0].placed == {}, "an ordinary job has it"
    other = trainer(EARLIER, array=OTHER)
    now = views_of([known[0], (other, state_of(other))], last=last)
    assert [one.nodes for one in now] == [set(), {"n1"}], "another trainer had it first"


COSTS = 18.0, 12.0  # seconds after it grew, or shrank
ON_N1 = element(0, "running n1", start_s=NOW_S - 60)
ON_N2 = element(1, "running n2", start_s=NOW_S)


@cases(
    "now, had, until_s",
    after_it_grew=(view(ON_N1, ON_N2), "n1", NOW_S + 18),
    after_it_shrank=(view(ON_N1), "n1 n2", NOW_S + 12),
    not_for_a_start=(view(ON_N1), "", 0),
    not_at_the_first_look_of_a_controller=(view(ON_N1, ON_N2), "", 0),
    not_where_nothing_changed=(view(ON_N1), "n1", 0),
    not_without_a_node=(view("held"), "n1", 0),
    from_when_the_node_came_not_from_when_it_was_seen=(
        view(ON_N1, replace(ON_N2, start_s=NOW_S - 3)), "n1", NOW_S - 3 + 18
    ),
    as_long_as_for_the_first_of_two=(view(ON_N1, paused_until_s=NOW_S + 100), "n1 n2", NOW_S + 100),
)  # fmt: skip
def test_a_trainer_stands_still(now: TrainerView, had: str, until_s: float) -> None:
    assert note_rescale(now, named(had), *COSTS, NOW_S).paused_until_s == until_s


def test_nodes_that_come_together_are_one_start_also_where_they_come_from_others() -> None:
    first, second = replace(ON_N1, start_s=NOW_S - 3), replace(ON_N2, start_s=NOW_S - 3)
    assert note_rescale(view(first, second), named("n1"), *COSTS, NOW_S).paused_until_s <= NOW_S
