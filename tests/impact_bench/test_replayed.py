"""The replay behind assess, held against what was measured on Slurm with the same stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.impact_bench.stream import busy_stream
from tests.impact_bench.replayed import main, measured, rendered, scheduled


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


def test_the_side_without_trainers_of_a_run_is_a_log() -> None:
    job = {"submit_s": 100.0, "start_s": 120.2, "end_s": 150.0, "account": {"nodes": ["n1", "n3"]}}
    other = job | {"submit_s": 125.0, "start_s": 126.0, "account": {"nodes": ["n2"]}}
    log = measured(
        {
            "settings": {"nodes": 3},
            "begin_s": {"without": 90.0},
            "passes_s": {"without": [90.0, 120.0]},
            "jobs": {"without": [job, other]},
        }
    )
    assert log.jobs is not None
    one, two = log.jobs.between(log.from_s, log.to_s)
    assert (one.backfilled, two.backfilled) == (True, False)
    assert (one.nodes, one.node_list) == (2, "n1,n3")
    assert (log.nodes, log.from_s, log.to_s) == (3, 90.0, 150.0)


def test_results_of_something_else_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[]")
    done = CliRunner().invoke(main, ["--results", str(tmp_path / "results.json")])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "no results.json" in done.output
