"""Until when trainers stand still whose nodes are others than before."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.state.trainer_state import TrainerState, note_change
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementState
from tests.controller.worlds import NOW_S, element, places, view

COSTS = 18.0, 12.0  # seconds after it grew, or shrank
HELD = element(2, ElementState.HELD)
ON_N1 = element(0, ElementState.RUNNING, "n1", start_s=NOW_S - 60)
ON_N2 = element(1, ElementState.RUNNING, "n2", start_s=NOW_S)


def noted(now: TrainerView, *had: str) -> TrainerState:
    return note_change(now.state, places(" ".join(had)), now.since(), *COSTS, NOW_S)


def test_a_trainer_stands_still_for_a_while_after_it_grew() -> None:
    assert noted(view(ON_N1, ON_N2), "n1").paused_until_s == NOW_S + 18


def test_and_after_it_shrank() -> None:
    assert noted(view(ON_N1), "n1", "n2").paused_until_s == NOW_S + 12


def test_nobody_pauses_for_a_start_or_for_nothing() -> None:
    assert noted(view(ON_N1)).paused_until_s == 0
    assert noted(view(ON_N1), "n1").paused_until_s == 0
    assert noted(view(HELD), "n1").paused_until_s == 0


def test_nobody_pauses_at_the_first_look_of_a_controller() -> None:
    assert noted(view(ON_N1, ON_N2)).paused_until_s == 0


def test_nodes_that_come_together_are_one_start_also_where_they_come_from_others() -> None:
    first, second = replace(ON_N1, start_s=NOW_S - 3), replace(ON_N2, start_s=NOW_S - 3)
    assert noted(view(first, second), "n1").paused_until_s <= NOW_S


def test_a_growth_counts_from_when_the_node_came_not_from_when_it_was_seen() -> None:
    second = replace(ON_N2, start_s=NOW_S - 3)
    assert noted(view(ON_N1, second), "n1").paused_until_s == NOW_S - 3 + 18


def test_a_second_change_does_not_shorten_the_pause_of_the_first() -> None:
    paused = view(ON_N1, paused_until_s=NOW_S + 100)
    assert noted(paused, "n1", "n2").paused_until_s == NOW_S + 100


def test_since_when_a_trainer_has_no_node_is_known() -> None:
    assert noted(view(HELD), "n1").had_nodes_s == NOW_S
    assert noted(view(HELD, had_nodes_s=NOW_S - 60)).had_nodes_s == NOW_S - 60
