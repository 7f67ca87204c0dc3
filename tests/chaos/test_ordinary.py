"""What is said of an ordinary job, by what it has written and what Slurm shows."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.chaos.ordinary import SCRIPT, Ordinary
from tests.tools import program


@pytest.mark.parametrize(
    ("status", "files", "state", "said"),
    [
        (0, {}, "PENDING", ""),
        (0, {"start": "1"}, "RUNNING", ""),
        (0, {"start": "1", "end": ""}, "COMPLETED", ""),
        (1, {"start": "1", "end": ""}, "FAILED", ""),
        (0, {"start": "1", "end": ""}, "FAILED", "is FAILED, and should be COMPLETED"),
        (1, {"start": "1", "end": ""}, "COMPLETED", "is COMPLETED, and should be FAILED"),
        (1, {"start": "1"}, "FAILED", "is FAILED, and did not come to its end"),
        (0, {"start": "1"}, "CANCELLED", "is CANCELLED, and did not come to its end"),
        (0, {"start": "1", "disturbed": "got SIGTERM\n"}, "RUNNING", "got SIGTERM"),
        (0, {"end": "", "disturbed": "ended early\n"}, "COMPLETED", "ended early"),
    ],
)
def test_a_job_ends_by_itself_with_its_own_status(
    status: int, files: dict[str, str], state: str, said: str, tmp_path: Path
) -> None:
    job = Ordinary(5, 0.0, 0.0, status, tmp_path / "job-1")
    for suffix, text in files.items():
        job.name.with_suffix(f".{suffix}").write_text(text)
    assert job.wrong(state) == said


@pytest.mark.parametrize(
    ("hits", "noted"),
    [("kill -TERM $PPID", ["got SIGTERM"]), ("kill -KILL $$", ["ended early"]), ("exit 0", [])],
)
def test_a_job_notes_what_reaches_it_and_what_it_runs(
    hits: str, noted: list[str], tmp_path: Path
) -> None:
    program(tmp_path, "sleep", hits)
    job = Ordinary(5, 0.0, time.time(), 3, tmp_path / "job-1")
    script = SCRIPT.format(name=job.name, runs_s=0, status=job.status)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run(["bash", "-c", script], env=path).returncode == 3
    assert job.ended
    assert job.wait_s() is not None
    assert job.wrong("FAILED") == ", ".join(noted)
