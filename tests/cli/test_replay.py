"""``bftrainer replay``: what planners see, for good and for bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import main
from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.planner.solver import Planner

EVENTS = "time,node,idle\n0,a,true\n0,b,true\n1800,b,false\n3600,a,false\n"


def run(*options: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, options)])


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.csv"
    path.write_text(EVENTS)
    return path


def test_json_and_a_report_that_needs_nothing_else_have_the_figures(
    events: Path, tmp_path: Path
) -> None:
    found = json.loads(run("--events", events, "--report", tmp_path, "--json").stdout)
    assert (found["events"], found["hours"], found["mean_pool_nodes"]) == (3, 1.0, 1.5)
    assert found["idle_node_hours"] == found["used_node_hours"] == 1.5
    assert 0.9 < found["U"] <= found["U_free"] <= 1.0
    page = (tmp_path / "replay.html").read_text()
    assert "data:image/svg+xml" in page
    assert "http" not in page
    assert json.loads((tmp_path / "replay.json").read_text())["U"] == found["U"]


def test_says_how_many_plans_are_not_proven(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def unproven(planner: Planner, problem: Problem) -> Plan:
        return replace(plan(planner, problem), status="feasible")

    monkeypatch.setattr(Planner, "plan", unproven)
    said = run("--events", events).stderr
    assert "feasible plans: not proven the best in the time for it\n" in said


def test_where_the_report_cannot_be_written_the_result_is_shown(
    events: Path, tmp_path: Path
) -> None:
    (tmp_path / "replay.html").mkdir()
    result = run("--events", events, "--report", tmp_path)
    assert result.exit_code == 2
    assert f"--report {tmp_path}: Is a directory; it was not written" in result.stderr
    assert "idle node-hours    1.5\nof these used      1.5  (100.0%)\n" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"events.csv", "replay.html"}


def test_a_time_of_a_log_may_begin_where_the_log_does(tmp_path: Path) -> None:
    log = tmp_path / "jobs.txt"
    rows = "".join(
        f"{n}|1|{9 * n}00|{9 * n}00|{9 * n + 10}00|COMPLETED|n{n % 2}\n" for n in range(1, 400)
    )
    log.write_text(f"JobID|NNodes|Submit|Start|End|State|NodeList\n{rows}")
    found = json.loads(run("--log", log, "--hours", 2, "--at-once", 1, "--json").stdout)
    assert found["hours"] == 2.0
