"""What Slurm is asked is counted, and asked and answered as before."""

from __future__ import annotations

from typing import cast

import pytest

from bftrainer_slurm.controller.state.statistics import Counts, MeteredGateway
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.worlds import NOW_S


def slurm() -> MadeUpSlurm:
    return MadeUpSlurm(NOW_S, ["n1"], queue_rpcs=2)


def test_answers_and_errors_pass_through_and_are_counted_by_method() -> None:
    counts = Counts()
    of = slurm()
    metered = MeteredGateway(cast(Gateway, of), counts, lambda rpcs: None)
    assert metered.queue() == of.queue()
    of.away = True
    with pytest.raises(SlurmUnavailableError):
        metered.queue()
    assert metered.name == "made up"
    assert {name: one.count for name, one in counts.requests.items()} == {"queue": 2}
    assert counts.failed_requests == {"queue": 1}


def test_looks_draw_what_they_cost_and_changes_nothing_as_they_have_waited_for_it() -> None:
    drawn: list[int] = []
    metered = MeteredGateway(cast(Gateway, slurm()), Counts(), drawn.append)
    metered.queue()
    metered.reservations()
    metered.hold([])
    assert sum(drawn) == 2 + 1
