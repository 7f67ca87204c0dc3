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


class Keeper(FakeKeeper):
    """Notes what it is told among the requests to Slurm."""

    def __init__(self, slurm: MadeUpSlurm) -> None:
        super().__init__()
        self._asked = slurm.asked_

    def _hear(self, *words: object) -> None:
        self._asked.append((" ".join(map(str, words)), 0.0))
        super()._hear(*words)


@dataclass
class Results:
    """What became of the actions that were tried, and when to go on."""

    done: list[Action] = field(default_factory=list)
    refused: list[Action] = field(default_factory=list)
    again_in_s: float | None = None

    def note(self, action: Action, refused: str) -> None:
        (self.refused if refused else self.done).append(action)


def do(
    slurm: MadeUpSlurm,
    *actions: Action,
    spent_s: float = 0.0,
    results: Results | None = None,
    silent: bool = False,
) -> Results:
    results, began_s = results or Results(), slurm.now_s - spent_s
    keeper = Keeper(slurm)
    keeper.silent, groups = silent, Groups(lambda: ("", keeper))
    now = lambda: slurm.now_s  # noqa: E731
    results.again_in_s = execute(actions, slurm, now, groups, began_s, results.note)
    return results


def grow(*elements: ElementId, nodes: str = "n1", first: bool = False) -> Grow:
    return Grow(elements, named(nodes), frozenset(), first)


def grows(number: int) -> list[Action]:
    """As many growths, each on a node of its own."""
    return [grow(A, nodes=f"n{one}") for one in range(number)]


@cases(
    "action, word",
    a_trainer_starts_before_the_keeper_knows_that_it_is_the_first=(
        replace(grow(A), new=True), f"begins {ARRAY}"
    ),
    a_finished_training_starts_before_the_keeper_knows_that_it_has_finished=(
        replace(grow(A), finished=True), f"finished {ARRAY}"
    ),
)  # fmt: skip
def test_no_element_of(action: Grow, word: str) -> None:
    slurm = site()
    assert do(slurm, action).done == [action]
    assert slurm.requests_ == [word, "grow"]
    slurm = site()
    assert do(slurm, action, silent=True).done == []
    assert slurm.requests_ == [word]


def test_what_frees_nodes_comes_first_and_what_takes_them_last() -> None:
    slurm, shrink = site(), Shrink((C,), "why")
    do(slurm, grow(A), Revive((B,), "failed"), Cancel((A,), "over"), Hold((B,), "why"), shrink)
    assert slurm.requests_ == ["shrink", "hold", "cancel", "revive", "grow"]


def test_a_trainer_with_nothing_alive_begins_a_new_rendezvous() -> None:
    slurm = site()
    do(slurm, grow(A, B, nodes="n1 n2", first=True), grow(C, nodes="n3"))
    assert slurm.requests_ == [f"ended {ARRAY}", "grow", "grow"]
    assert slurm.on_(ARRAY) == {"n1": 0, "n2": 1, "n3": 2}


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
    many = grows(MOST_ACTIONS + 10)
    results = do(site(), *many)
    assert results.done == many[:MOST_ACTIONS]
    assert results.again_in_s == MOST_ACTIONS / 10, "10 requests a second at most"


def test_commands_that_take_long_use_up_the_budget_too() -> None:
    results = do(site(takes_s=1.0), *grows(10))
    assert BUDGET_S <= len(results.done) <= BUDGET_S + 1
    assert results.again_in_s is not None


def test_what_came_before_uses_it_up_too_but_not_all_of_it() -> None:
    slurm = site(takes_s=0.25)
    results = do(slurm, *[Shrink((A,), "why")] * 10, spent_s=BUDGET_S)
    assert 1 < len(results.done) < 10
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


BEFORE = state_of(trainer("running n1", "held", failed(2, "n3")))
GROW = grow(B, nodes="n2")


def test_what_slurm_has_let_go_is_released() -> None:
    record = GROW.after(BEFORE, "", NOW_S).of(1)
    assert (record.phase, record.targets) == (Phase.RELEASED, named("n2"))


def test_what_it_has_refused_may_be_released_all_the_same_and_is_not_tried_again_at_once() -> None:
    state = GROW.after(BEFORE, "no", NOW_S)  # Slurm does so for --cpus-per-task=64
    assert state.of(1).phase is Phase.RELEASED
    assert state.refused["n2"] > NOW_S
    # For as long as it is not tried again, users read why.
    assert state.refusal_at(state.refused["n2"]) == "no"
    assert state.refusal_at(NOW_S + 3600) == ""
    assert GROW.after(state, "", NOW_S).refusal_at(NOW_S) == ""


def test_an_element_that_was_ended_is_leaving_by_our_doing() -> None:
    record = Shrink((A,), "why").after(BEFORE, "", NOW_S).of(0)
    assert (record.phase, record.ours, record.node) == (Phase.LEAVING, True, "n1")


@cases(
    "state",
    by_an_end_that_was_refused=Shrink((A,), "why").after(BEFORE, "no", NOW_S),
    by_a_revival_that_was_refused=Revive((A,), "failed").after(BEFORE, "no", NOW_S),
    by_a_cancel_that_was_refused=Cancel((A,), "over").after(BEFORE, "no", NOW_S),
    by_a_hold_as_the_next_look_tells_it=Hold((B,), "why").after(BEFORE, "", NOW_S),
)
def test_nothing_is_changed(state: TrainerState) -> None:
    assert state == BEFORE


def test_what_was_brought_back_and_when_a_trainer_was_cancelled_is_known() -> None:
    assert Revive((C,), "failed").after(BEFORE, "", NOW_S).of(2).phase is Phase.REVIVED
    assert Cancel((A,), "over").after(BEFORE, "", NOW_S).cancelled_s == NOW_S


def test_actions_of_one_trainer_add_up() -> None:
    both = GROW.after(Shrink((A,), "why").after(BEFORE, "", NOW_S), "", NOW_S)
    assert [both.of(task).phase for task in (0, 1)] == [Phase.LEAVING, Phase.RELEASED]
