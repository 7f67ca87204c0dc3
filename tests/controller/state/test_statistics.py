"""What Slurm is asked is counted, and asked and answered as before."""

from __future__ import annotations

from typing import cast

import pytest

from bftrainer_slurm.controller.state.statistics import Counts
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.wrappers import metered
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.worlds import NOW_S


def slurm() -> MadeUpSlurm:
    return MadeUpSlurm(NOW_S, ["n1"], queue_rpcs=2)


def test_answers_and_errors_pass_through_and_are_counted_by_method() -> None:
    counts = Counts()
    of = slurm()
    gateway = metered(cast(Gateway, of), counts.note_request, lambda rpcs: None)
    assert gateway.queue() == of.queue()
    of.away = True
    with pytest.raises(SlurmUnavailableError):
        gateway.queue()
    assert gateway.name == "made up"
    assert {name: one.count for name, one in counts.requests.items()} == {"queue": 2}
    assert counts.failed_requests == {"queue": 1}


def test_looks_draw_what_they_cost_and_changes_nothing_as_they_have_waited_for_it() -> None:
    drawn: list[int] = []
    gateway = metered(cast(Gateway, slurm()), Counts().note_request, drawn.append)
    gateway.queue()
    gateway.reservations()
    gateway.hold([])
    assert sum(drawn) == 2 + 1
