"""The replay behind assess, held against what was measured on Slurm with the same stream."""

from __future__ import annotations

import pytest

from scripts.impact_bench.stream import busy_stream
from tests.impact_bench.replayed import rendered, scheduled


@pytest.mark.parametrize("load", [0.6, 0.9])
def test_trainers_that_leave_ahead_of_passes_cost_jobs_what_they_did_on_slurm(load: float) -> None:
    # docs/internals/assess.md, seed 1: 0 and 2 of 100 missed a pass, 5 and 2 preempted.
    _, found = rendered(scheduled(busy_stream(100, 8, 1, load), 8))
    ahead, not_ahead = found["leave ahead"]["felt"], found["do not"]["felt"]
    assert ahead["missed"] <= 2
    assert ahead["preempted"] <= 6
    assert ahead["median_s"] <= 0.05
    assert not_ahead["missed"] > 25
    assert found["leave ahead"]["used"] > 0.75
