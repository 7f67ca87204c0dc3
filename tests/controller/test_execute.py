"""What was decided is done in order, within a budget, refusals are survived; what is known then."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bftrainer_slurm.controller.act import BUDGET_S, MOST_ACTIONS, Groups, execute
from bftrainer_slurm.controller.decide.actions import Action, Cancel, Grow, Hold, Revive, Shrink
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError
from tests.controller.fake_keeper import FakeKeeper
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.worlds import ARRAY, NOW_S, cases, failed, named, state_of, trainer

A, B, C = (ElementId(ARRAY, task) for task in range(3))


def site(**more: Any) -> MadeUpSlurm:
    """A Slurm in which a trainer waits; its clock begins at 0."""
    slurm = MadeUpSlurm(0.0, ["n1", "n2", "n3"], instant=True, **more)
    slurm.submit_(ARRAY, 1, 3, None)
    return slurm


@dataclass
class Results:
    """What became of the actions that were tried, when to go on, and what the keeper heard."""

    done: list[Action] = field(default_factory=list)
    refused: list[Action] = field(default_factory=list)
    again_in_s: float | None = None
    heard: list[tuple[object, ...]] = field(default_factory=list)

    def note(self, action: Action, refused: str) -> None:
        (self.refused if refused else self.done).append(action)


def do(
    slurm: MadeUpSlurm,
    *actions: Action,
    spent_s: float = 0.0,
    results: Results | None = None,
    silent: bool = False,
) -> Results:
    results, keeper = results or Results(), FakeKeeper()
    results.heard, keeper.silent = keeper.heard, silent
    groups, began_s = Groups(lambda: ("", keeper)), slurm.now_s - spent_s  # type: ignore[arg-type,return-value]
    about = (slurm, lambda: slurm.now_s, groups, began_s, results.note)
    results.again_in_s = execute(actions, *about)
    return results


def grow(*elements: ElementId, nodes: str = "n1", first: bool = False) -> Grow:
    return Grow(elements, named(nodes), frozenset(), first)


@cases(
    "action, word",
    begins_a_rendezvous_where_nothing_is_alive=(grow(A, first=True), "ended"),
    is_the_first_of_a_trainer=(replace(grow(A), new=True), "begins"),
    ends_a_finished_training=(replace(grow(A), finished=True), "finished"),
)
def test_no_element_starts_before_the_keeper_knows_that_it(action: Grow, word: str) -> None:
    results = do(site(), action, grow(B, nodes="n2"))
    assert results.done == [action, grow(B, nodes="n2")]
    assert results.heard == [(word, ARRAY)]
    assert do(slurm := site(), action, silent=True).done == []
    assert slurm.requests_ == []


def test_what_frees_nodes_comes_first_and_what_takes_them_last() -> None:
    slurm, shrink = site(), Shrink((C,), "why")
    do(slurm, grow(A), Revive((B,), "failed"), Cancel((A,), "over"), Hold((B,), "why"), shrink)
    assert slurm.requests_ == ["shrink", "hold", "cancel", "revive", "grow"]


def test_a_refusal_is_returned_and_the_rest_is_done() -> None:
    results = do(site(fails={"grow": RefusedError("no")}), grow(A), grow(B, nodes="n2"))
    assert (results.refused, results.done) == ([grow(A)], [grow(B, nodes="n2")])


@cases(
    "named, done",
    the_others_are_done=([B], [Shrink((A, C), "why")]),
    it_does_not_say_which_and_none_is_done=([], []),
    it_names_all_and_none_is_done=([A, B, C], []),
)
def test_of_a_request_that_slurm_refused_in_part(
    named: list[ElementId], done: list[Action]
) -> None:
    results = do(site(fails={"shrink": RefusedError("no", named)}), Shrink((A, B, C), "why"))
    assert (results.refused, results.done) == ([Shrink((A, B, C), "why")], done)


def test_what_was_done_is_known_though_slurm_stops_answering() -> None:
    slurm, results = site(fails={"hold": SlurmUnavailableError("no answer")}), Results()
    shrink = Shrink((B,), "why")
    with pytest.raises(SlurmUnavailableError):
        do(slurm, shrink, Hold((C,), "why"), grow(A), results=results)
    assert results == Results(done=[shrink])


def test_a_turn_does_so_many_actions_and_leaves_the_rest_in_its_order() -> None:
    many = [grow(A, nodes=f"n{one}") for one in range(MOST_ACTIONS + 10)]
    results = do(site(), *many)
    assert results.done == many[:MOST_ACTIONS]
    assert results.again_in_s == MOST_ACTIONS / 10, "10 requests a second at most"


def test_commands_that_take_long_and_what_came_before_use_up_the_budget() -> None:
    shrinks = [Shrink((A,), "why")] * 10
    results = do(site(takes_s=1.0), *shrinks)
    assert BUDGET_S <= len(results.done) <= BUDGET_S + 1
    assert results.again_in_s is not None
    slurm = site(takes_s=0.25)
    assert 1 < len(do(slurm, *shrinks, spent_s=BUDGET_S).done) < 10, "but not all of it"
    assert slurm.now_s <= 1


@cases(
    "action, line",
    an_end=(Shrink((A, B), "why"), f"shrink {A}, {B}: why"),
    a_cancel=(Cancel((B, C), "failed\nhere"), f"cancel the rest of {ARRAY}: failed"),
    a_start=(grow(A, B, nodes="n2 n1"), f"grow {A}, {B} on n1, n2"),
)  # fmt: skip
def test_the_log_says(action: Action, line: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        do(site(), action)
    assert caplog.messages == [line]


# What is known then.

BEFORE = state_of(trainer("running n1", "held", failed(2, "n3")))
GROW = grow(B, nodes="n2")


@cases(
    "action, task, known",
    what_slurm_has_let_go_is_released=(GROW, 1, {"phase": Phase.RELEASED, "targets": {"n2"}}),
    what_was_ended_is_leaving_by_our_doing=(
        Shrink((A,), "why"), 0, {"phase": Phase.LEAVING, "ours": True, "node": "n1"}
    ),
    what_was_brought_back_is_revived=(Revive((C,), "failed"), 2, {"phase": Phase.REVIVED}),
)  # fmt: skip
def test_afterwards(action: Action, task: int, known: dict[str, object]) -> None:
    record = action.after(BEFORE, "", NOW_S).of(task)
    assert {name: getattr(record, name) for name in known} == known
    also = Cancel((A,), "over").after(action.after(BEFORE, "", NOW_S), "", NOW_S)
    assert (also.of(task), also.cancelled_s) == (record, NOW_S), "actions add up"


def test_what_it_has_refused_may_be_released_all_the_same_and_is_not_tried_again_at_once() -> None:
    state = GROW.after(BEFORE, "no", NOW_S)  # Slurm does so for --cpus-per-task=64
    assert state.of(1).phase is Phase.RELEASED
    assert state.refused["n2"] > NOW_S
    # For as long as it is not tried again, users read why.
    assert state.refusal_at(state.refused["n2"]) == "no"
    assert state.refusal_at(NOW_S + 3600) == ""
    assert GROW.after(state, "", NOW_S).refusal_at(NOW_S) == ""


@cases(
    "state",
    by_an_end_that_was_refused=Shrink((A,), "why").after(BEFORE, "no", NOW_S),
    by_a_revival_that_was_refused=Revive((A,), "failed").after(BEFORE, "no", NOW_S),
    by_a_cancel_that_was_refused=Cancel((A,), "over").after(BEFORE, "no", NOW_S),
    by_a_hold_as_the_next_look_tells_it=Hold((B,), "why").after(BEFORE, "", NOW_S),
)
def test_nothing_is_changed(state: TrainerState) -> None:
    assert state == BEFORE
