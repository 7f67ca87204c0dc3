"""What Slurm is asked is counted, and asked and answered as before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bftrainer_slurm.controller.state.counts import Counts, MeteredGateway
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError


class Slurm:
    """Answers once, and then no more."""

    name = "made up"
    queue_rpcs = 2

    def __init__(self) -> None:
        self.answers: list[Any] = ["a queue"]

    def reservations(self) -> tuple[()]:
        return ()

    def hold(self) -> None:
        pass

    def queue(self) -> Any:
        if not self.answers:
            raise SlurmUnavailableError("no answer")
        return self.answers.pop()


def test_answers_and_errors_pass_through_and_are_counted_by_method() -> None:
    counts = Counts()
    metered = MeteredGateway(cast(Gateway, Slurm()), counts, lambda rpcs: None)
    assert metered.queue() == "a queue"
    with pytest.raises(SlurmUnavailableError):
        metered.queue()
    assert metered.name == "made up"
    assert {name: one.count for name, one in counts.requests.items()} == {"queue": 2}
    assert counts.failed_requests == {"queue": 1}


def test_looks_draw_what_they_cost_and_changes_nothing_as_they_have_waited_for_it() -> None:
    drawn: list[int] = []
    metered = MeteredGateway(cast(Gateway, Slurm()), Counts(), drawn.append)
    metered.queue()
    metered.reservations()
    metered.hold()
    assert sum(drawn) == 2 + 1
