"""Step logs are read while they are written."""

from __future__ import annotations

from pathlib import Path

from scripts.elastic_bench.steplog import Step, StepLogs


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    logs = StepLogs(tmp_path)
    log = tmp_path / "n1.100.log"
    log.write_text("1.5 1 4 77\n2.5 2 4")
    logs.read()
    assert logs.of("n1") == [Step(1.5, 1, 4, 77)]
    log.write_text("1.5 1 4 77\n2.5 2 4 78\n")
    logs.read()
    assert logs.of("n1") == [Step(1.5, 1, 4, 77), Step(2.5, 2, 4, 78)]


def test_the_processes_of_a_node_are_one_course_in_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "n1.200.log").write_text("3.0 3 2 0\n")
    (tmp_path / "n1.100.log").write_text("1.0 1 4 0\n2.0 2 4 0\n")
    (tmp_path / "n2.300.log").write_text("1.1 1 4 0\n")
    logs = StepLogs(tmp_path)
    logs.read()
    assert [one.step for one in logs.of("n1")] == [1, 2, 3]
    assert [one.step for one in logs.of("n2")] == [1]


def test_a_node_that_made_no_step_has_none(tmp_path: Path) -> None:
    assert StepLogs(tmp_path).of("n9") == []
