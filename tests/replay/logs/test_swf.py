"""What a log in the Standard Workload Format says."""

from __future__ import annotations

import pytest

from bftrainer_slurm.replay.logs.jobs import Job, Notes
from bftrainer_slurm.replay.logs.swf import Machine, is_swf, read_swf


def read(*lines: str) -> tuple[list[Job], Notes, Machine]:
    notes, machine = Notes(), Machine()
    return list(read_swf(iter(enumerate(lines, 1)), notes, machine)), notes, machine


def row(
    submit: float = 10, wait: float = 5, run: float = 100, processors: int = 4, asked: int = -1
) -> str:
    return f"1 {submit} {wait} {run} {processors} -1 -1 {asked}" + " -1" * 10


def test_a_job_runs_after_its_wait() -> None:
    (job,), _, _ = read("; UnixStartTime: 1000", row())
    assert (job.start_s, job.end_s, job.nodes) == (1015, 1115, 4)


def test_the_header_describes_the_machine() -> None:
    _, _, machine = read("; MaxNodes: 128", ";MaxProcs: 2048 (16 a node)", row())
    assert (machine.nodes, machine.processors_per_node) == (128, 16)


def test_processors_fill_whole_nodes() -> None:
    (job,), _, _ = read("; MaxNodes: 10", "; MaxProcs: 40", row(processors=5))
    assert job.nodes == 2


def test_processors_are_nodes_where_the_header_does_not_say() -> None:
    (job,), _, machine = read("; MaxProcs: 40", row(processors=5))
    assert (job.nodes, machine.nodes) == (5, 40)


def test_requested_processors_stand_in_for_unknown_ones() -> None:
    (job,), _, _ = read(row(processors=-1, asked=8))
    assert job.nodes == 8


@pytest.mark.parametrize("line", [row(run=-1), row(run=0), row(run=0, wait=-1), row(processors=-1)])
def test_what_never_ran_is_left_out(line: str) -> None:
    jobs, notes, _ = read(line)
    assert (jobs, notes.never_ran) == ([], 1)


def test_a_job_that_ran_after_an_unknown_wait_is_no_job_that_never_ran() -> None:
    jobs, notes, _ = read(row(), row(wait=-1))
    assert (len(jobs), notes.never_ran, notes.malformed) == (1, 0, 1)
    assert "its wait (field 3) is unknown" in notes.bad_lines[0].why


@pytest.mark.parametrize(
    "line", ["1 2 3", row() + " 7", row(submit=float("nan")), row().replace("100", "x")]
)
def test_malformed_lines_are_counted(line: str) -> None:
    _, notes, _ = read(line)
    assert notes.malformed == 1


def test_the_format_is_recognised() -> None:
    assert is_swf("; Version: 2.2")
    assert is_swf(row())
    assert not is_swf("JobID|Start|End")
