"""What is known of trainers after what was done, and what was refused."""

from __future__ import annotations

from bftrainer_slurm.controller.act.execute import Results, after
from bftrainer_slurm.controller.decide.actions import Action, Cancel, Grow, Hold, Revive, Shrink
from bftrainer_slurm.controller.state.element import Phase
from bftrainer_slurm.controller.state.trainer import TrainerState
from bftrainer_slurm.model import ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, failed, state_of, trainer

FIRST, SECOND = ElementId(ARRAY, 0), ElementId(ARRAY, 1)
BEFORE = state_of(
    trainer(element(0, ElementState.RUNNING, "n1"), element(1, ElementState.HELD), failed(2, "n3"))
)
GROW = Grow((SECOND,), frozenset({"n2"}), frozenset({"n1"}), first=False)


def done(*actions: Action) -> TrainerState:
    return after({ARRAY: BEFORE}, Results(done=list(actions)), NOW_S).get(ARRAY, BEFORE)


def refused(action: Action) -> TrainerState:
    return after({ARRAY: BEFORE}, Results(refused=[action]), NOW_S).get(ARRAY, BEFORE)


def test_what_slurm_has_let_go_is_released() -> None:
    record = done(GROW).of(1)
    assert (record.phase, record.node, record.targets) == (Phase.RELEASED, "n2", {"n2"})


def test_what_it_has_refused_may_be_released_all_the_same() -> None:
    assert refused(GROW).of(1).phase is Phase.RELEASED  # Slurm does so for --cpus-per-task=64


def test_what_it_was_not_asked_is_not() -> None:
    assert after({ARRAY: BEFORE}, Results(left=[GROW]), NOW_S) == {}


def test_the_nodes_of_a_refused_growth_are_not_tried_again_at_once() -> None:
    assert refused(GROW).refused["n2"] > NOW_S


def test_an_element_that_was_ended_is_leaving_by_our_doing() -> None:
    record = done(Shrink((FIRST,), "why")).of(0)
    assert (record.phase, record.ours, record.node) == (Phase.LEAVING, True, "n1")


def test_an_end_that_was_refused_changes_nothing() -> None:
    assert refused(Shrink((FIRST,), "why")) == BEFORE


def test_what_was_brought_back_is_known_to_have_been() -> None:
    assert done(Revive((ElementId(ARRAY, 2),))).of(2).phase is Phase.REVIVED


def test_when_a_trainer_was_cancelled_is_known() -> None:
    assert done(Cancel(ARRAY, "over")).cancelled_s == NOW_S


def test_what_is_held_again_the_next_look_tells() -> None:
    assert done(Hold((SECOND,), "why")) == BEFORE


def test_actions_of_one_trainer_add_up_and_others_are_left_as_they_are() -> None:
    states = {ARRAY: BEFORE, 99: TrainerState()}
    changed = after(states, Results(done=[Shrink((FIRST,), "why"), GROW]), NOW_S)
    assert changed.keys() == {ARRAY}
    assert {changed[ARRAY].of(task).phase for task in (0, 1)} == {Phase.LEAVING, Phase.RELEASED}
