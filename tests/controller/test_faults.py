"""Trainers that cannot be handled: each alone is left alone, and the log says so once."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.state.registry import TrainerErrors
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from tests.controller.worlds import ARRAY

OTHER = 99


def turn(faults: TrainerErrors, error: Exception | None, array: int = ARRAY) -> None:
    """Begin a turn, and do something for a trainer that raises this."""
    faults.begin()
    with faults.of(array):
        if error is not None:
            raise error


def test_a_trainer_that_cannot_be_handled_is_named_with_the_reason() -> None:
    faults = TrainerErrors()
    turn(faults, ValueError("its comment"))
    assert faults.why == {ARRAY: "the controller cannot handle it: ValueError: its comment"}


def test_who_can_be_handled_is_not() -> None:
    faults = TrainerErrors()
    turn(faults, None)
    assert faults.why == {}


def test_each_turn_it_gets_another_chance() -> None:
    faults = TrainerErrors()
    turn(faults, ValueError("its comment"))
    turn(faults, None)
    assert faults.why == {}


def test_several_may_be_at_fault_in_one_turn() -> None:
    faults = TrainerErrors()
    turn(faults, ValueError("its comment"))
    with faults.of(OTHER):
        raise KeyError("its task")
    assert faults.why.keys() == {ARRAY, OTHER}


def test_what_is_wrong_with_slurm_is_nobodys_fault() -> None:
    faults = TrainerErrors()
    with pytest.raises(GatewayError):
        turn(faults, SlurmUnavailableError("no answer"))
    assert faults.why == {}


def test_the_same_reason_is_logged_once_and_another_one_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = TrainerErrors()
    for word in ("first", "first", "second", "second"):
        turn(faults, ValueError(word))
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(error) for error in logged] == ["first", "second"]


def test_within_a_turn_the_same_reason_is_logged_once_too(caplog: pytest.LogCaptureFixture) -> None:
    faults = TrainerErrors()
    for _ in range(3):  # of a trainer whose members tell something again and again
        with faults.of(ARRAY):
            raise ValueError("its report")
    assert len(caplog.records) == 1
