"""Which trainers have come since the last look, whatever ids they have."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.newcomers import newcomers
from bftrainer_slurm.model import Element, ElementState, Trainer
from tests.controller.worlds import ARRAY, NOW_S, element, trainer

FRESH = replace(element(0, ElementState.HELD), reason="JobHeldUser")
LOOKED_S = NOW_S


def submitted(seconds: float, *elements: Element) -> Trainer:
    """A trainer whose elements were all submitted or requeued so long after the last look."""
    return replace(trainer(*elements), submit_s=LOOKED_S + seconds)


def test_a_trainer_submitted_since_is_new() -> None:
    assert newcomers([submitted(5, FRESH)], (), LOOKED_S) == [ARRAY]


def test_a_trainer_submitted_before_is_not() -> None:
    assert newcomers([submitted(-5, FRESH)], (), LOOKED_S) == []


def test_a_trainer_that_was_there_at_the_last_look_is_not() -> None:
    assert newcomers([submitted(5, FRESH)], {ARRAY}, LOOKED_S) == []


def test_a_trainer_of_which_anything_ran_is_not() -> None:
    for state, reason in (
        (ElementState.RUNNING, ""),
        (ElementState.DELAYED, "BeginTime"),
        (ElementState.HELD, "job requeued in held state"),
    ):
        other = replace(element(1, state), reason=reason)
        assert newcomers([submitted(5, FRESH, other)], (), LOOKED_S) == []


def test_where_it_is_not_known_when_the_last_look_was_nobody_is() -> None:
    assert newcomers([submitted(5, FRESH)], (), None) == []
