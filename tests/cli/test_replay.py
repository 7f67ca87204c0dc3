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


def test_json_has_every_figure(events: Path) -> None:
    found = json.loads(run("--events", events, "--json").stdout)
    assert found["events"] == 3
    assert found["hours"] == 1.0
    assert found["mean_pool_nodes"] == 1.5
    assert found["idle_node_hours"] == found["used_node_hours"] == 1.5
    assert 0.9 < found["U"] <= found["U_free"] <= 1.0
    assert found["plan_ms"].keys() == {"median", "p95", "max"}
    assert {"samples", "lost_to_rescaling", "lost_to_reclaims", "trainers_done"} <= found.keys()


def test_says_how_many_plans_are_not_proven(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def unproven(planner: Planner, problem: Problem) -> Plan:
        return replace(plan(planner, problem), status="feasible")

    monkeypatch.setattr(Planner, "plan", unproven)
    said = run("--events", events).stderr
    assert "feasible plans: not proven the best in the time for it\n" in said


def test_the_table_says_the_same_in_words(events: Path) -> None:
    shown = run("--events", events).stdout
    assert "idle node-hours    1.5\n" in shown
    assert "of these used      1.5  (100.0%)" in shown


def test_a_made_cluster_needs_no_file() -> None:
    found = json.loads(run("--synthetic", "20:0.9", "--hours", 6, "--json").stdout)
    assert found["events"] > 0
    assert 0 < found["U"] <= 1


def test_the_report_needs_nothing_else(events: Path, tmp_path: Path) -> None:
    assert run("--events", events, "--report", tmp_path / "report").exit_code == 0
    page = (tmp_path / "report" / "replay.html").read_text()
    assert "data:image/svg+xml" in page
    assert "http" not in page
    assert json.loads((tmp_path / "report" / "replay.json").read_text())["events"] == 3


def test_where_the_report_cannot_be_written_the_result_is_shown(
    events: Path, tmp_path: Path
) -> None:
    (tmp_path / "replay.html").mkdir()
    result = run("--events", events, "--report", tmp_path)
    assert result.exit_code == 2
    assert f"--report {tmp_path}: Is a directory; it was not written" in result.stderr
    assert "idle node-hours    1.5\n" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"events.csv", "replay.html"}


BAD = {
    "neither source": ([], "give either --events FILE, --log FILE or --synthetic NODES"),
    "both sources": (["--synthetic", "5", "--events", "x.csv"], "give either"),
    "no such file": (["--events", "nope.csv"], "nope.csv: No such file"),
    "a made-up cluster of what": (["--synthetic", "many"], "--synthetic many: write NODES"),
    "a time without events": (
        ["--synthetic", "5", "--hours", "1", "--from", "9e9"],
        "--synthetic 5: no hole is left",
    ),
    "another time than that of the events": (
        ["--events", "EVENTS", "--from", "20240102"],
        "events.csv: no hole is left: the events go from 0 to 3600 (Unix seconds)",
    ),
    "no file": (["--events", "/dev/zero"], "/dev/zero: not a file"),
    "an objective nobody knows": (["--synthetic", "5", "--objective", "fame"], "--objective: "),
    "no trainers": (["--synthetic", "5", "--trainers", "nope.json"], "--trainers nope.json"),
    "no number": (["--synthetic", "5", "--forward-time", "nan"], "nan is not a finite number"),
    "nobody at once": (["--synthetic", "5", "--at-once", "0"], "--at-once"),
    "no time": (["--synthetic", "5", "--hours", "0"], "--hours"),
    "a log that is none": (["--log", "EVENTS.none"], "No such file"),
    "a zone of nothing": (["--synthetic", "5", "--time-zone", "Europe/Berlin"], "--log only"),
    "a report in a file": (["--synthetic", "5", "--report", "/dev/null/x"], "--report /dev/null"),
}


@pytest.mark.parametrize(("options", "said"), BAD.values(), ids=BAD)
def test_bad_input_ends_in_one_line(options: list[str], said: str, events: Path) -> None:
    result = run(*(events if option == "EVENTS" else option for option in options))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_trainers_are_checked_before_events_are_read(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{")
    result = run("--trainers", tmp_path / "bad", "--events", tmp_path / "bad")
    assert result.stderr.startswith(f"bftrainer: --trainers {tmp_path}/bad: ")


def test_trainers_that_come_too_late_are_told(events: Path, tmp_path: Path) -> None:
    entry = {
        "name": "J0", "submit": 9999, "min_nodes": 1, "max_nodes": 4, "rescale_up_s": 18,
        "rescale_down_s": 12, "total_samples": 1e9, "curve_nodes": [0, 1],
        "curve_throughput": [0, 1],
    }  # fmt: skip
    path = tmp_path / "trainers.json"
    path.write_text(json.dumps([entry]))
    late = run("--events", events, "--trainers", path)
    assert (late.exit_code, "--backlog" in late.stderr) == (2, True)
    assert run("--events", events, "--trainers", path, "--backlog").exit_code == 0


def test_a_time_of_a_log_may_begin_where_the_log_does(tmp_path: Path) -> None:
    log = tmp_path / "jobs.txt"
    rows = "".join(
        f"{n}|1|{9 * n}00|{9 * n}00|{9 * n + 10}00|COMPLETED|n{n % 2}\n" for n in range(1, 400)
    )
    log.write_text(f"JobID|NNodes|Submit|Start|End|State|NodeList\n{rows}")
    found = json.loads(run("--log", log, "--hours", 2, "--at-once", 1, "--json").stdout)
    assert found["hours"] == 2.0
