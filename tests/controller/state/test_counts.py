"""What Slurm is asked is counted, and asked and answered as before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bftrainer_slurm.controller.state.counts import Counts, MeteredGateway
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError


class Slurm:
    """Answers once, and then no more."""

    name = "made up"

    def __init__(self) -> None:
        self.answers: list[Any] = ["a queue"]

    def queue(self) -> Any:
        if not self.answers:
            raise SlurmUnavailableError("no answer")
        return self.answers.pop()


def test_answers_and_errors_pass_through_and_are_counted_by_method() -> None:
    counts = Counts()
    metered = MeteredGateway(cast(Gateway, Slurm()), counts)
    assert metered.queue() == "a queue"
    with pytest.raises(SlurmUnavailableError):
        metered.queue()
    assert metered.name == "made up"
    assert {name: one.count for name, one in counts.requests.items()} == {"queue": 2}
    assert counts.failed_requests == {"queue": 1}
