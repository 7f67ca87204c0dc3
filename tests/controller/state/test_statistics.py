"""What Slurm is asked is counted, and asked and answered as before."""

from __future__ import annotations

from typing import cast

import pytest

from bftrainer_slurm.controller.state.statistics import Counts
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.wrappers import metered
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.worlds import NOW_S


def test_answers_and_errors_pass_through_and_are_counted_by_method() -> None:
    counts = Counts()
    of = MadeUpSlurm(NOW_S, ["n1"])
    gateway = metered(cast(Gateway, of), counts.note_request)
    assert gateway.queue() == of.queue()
    of.away = True
    with pytest.raises(SlurmUnavailableError):
        gateway.queue()
    assert gateway.name == "made up"
    assert {name: one.count for name, one in counts.requests.items()} == {"queue": 2}
    assert counts.failed_requests == {"queue": 1}
