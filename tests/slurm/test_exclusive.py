"""Who has whole nodes, as squeue of 26.05 tells it in a field of its own; with what it printed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bftrainer_slurm.slurm.exclusive import ExclusiveJobs
from bftrainer_slurm.slurm.rows import JobRow
from bftrainer_slurm.slurm.run import SlurmRunner
from tests.slurm.test_records import ORDINARY

PRINTED = (Path(__file__).parent / "data" / "gpus" / "squeue-exclusive-26.05.5.txt").read_text()
JOBS = [replace(ORDINARY, array=48600000 + n, gres="gres/gpu:2", shared="NO") for n in range(1, 5)]


@dataclass(frozen=True)
class Printing(SlurmRunner):
    """Prints what squeue printed, and counts the questions to slurmctld."""

    version: str = "slurm-wlm 26.05.5"
    text: str = PRINTED
    asked: list[str] = field(default_factory=list)

    def read(self, *command: str, accepted_status: int = 0) -> str:
        if command == ("squeue", "--version"):
            return f"{self.version}\n"
        self.asked.append(command[-1])
        return self.text


def shared(jobs: ExclusiveJobs, rows: list[JobRow]) -> list[str]:
    return [row.shared for row in jobs.mark(rows) if isinstance(row, JobRow)]


def test_parts_and_whole_nodes_are_told_apart_and_asked_for_once() -> None:
    runner = Printing()
    jobs = ExclusiveJobs(runner)
    assert shared(jobs, JOBS) == ["OK", "NO", "OK", "NO"]
    assert shared(jobs, JOBS[:2]) == ["OK", "NO"]
    assert runner.asked == ["--Format=ArrayJobID:20,Exclusive:20"]
    jobs.mark(JOBS)
    assert len(runner.asked) == 2


OLDER = ("slurm 22.05.8", "slurm-wlm 24.11.5", "slurm 25.11.0", "odd")


@pytest.mark.parametrize("version", [*OLDER, "slurm 26.05.0", "slurm-wlm 27.05.1-rc1"])
def test_what_older_slurms_say_stands_and_newer_ones_are_asked(version: str) -> None:
    runner = Printing(version=version)
    said = [replace(JOBS[0], shared="OK"), JOBS[1], JOBS[2]]
    assert shared(ExclusiveJobs(runner), said) == ["OK", "NO", "NO" if version in OLDER else "OK"]
    assert bool(runner.asked) is (version not in OLDER)


def test_nothing_is_asked_without_jobs_that_wait_or_run() -> None:
    runner = Printing()
    over = replace(JOBS[0], state="COMPLETED")
    rows = [over, "unreadable"]
    assert ExclusiveJobs(runner).mark(rows) == rows
    assert runner.asked == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "48600001\n", "x NO\n", "48600001 USER\n", "48600001 NEW\n"),
        # An array with a task that has a whole node.
        *("48600001 NO\n48600001 NODE\n", "48600001 NODE\n48600001 NO\n"),
    ],
)
def test_who_is_not_known_to_share_has_whole_nodes(text: str) -> None:
    assert shared(ExclusiveJobs(Printing(text=text)), JOBS[:1]) == ["NO"]
