"""What is said of an ordinary job, by what it has written and what Slurm shows."""

import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from tests.chaos.made import element
from tests.chaos.ordinary import SCRIPT, Ordinary, Stream
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
    job = Ordinary(0.0, status, tmp_path / "job-1")
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
    job = Ordinary(time.monotonic(), 3, tmp_path / "job-1")
    script = SCRIPT.format(name=job.name, runs_s=0, status=job.status)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run(["bash", "-c", script], env=path).returncode == 3
    assert job.ended
    assert job.wait_s() is not None
    assert job.wrong("FAILED") == ", ".join(noted)


@pytest.mark.parametrize(
    ("state", "aged_s", "at", "found"),
    [
        ("RUNNING", 80.0, {}, {"beside"}),
        ("RUNNING", 100.0, {}, {"late", "beside"}),
        ("RUNNING", 100.0, {"since_s": 50.0}, {"beside"}),
        ("PENDING", 100.0, {"struck": {"n1"}}, set()),
        ("PENDING", 100.0, {"silent": {"n1"}}, set()),
        ("FAILED", 10.0, {}, {"wrong"}),
        ("FAILED", 10.0, {"struck": {"n1"}}, set()),
    ],
)
def test_a_job_may_take_so_long_unless_its_node_has_failed(
    state: str, aged_s: float, at: dict[str, Any], found: set[str], tmp_path: Path
) -> None:
    submit_s = time.monotonic() - aged_s
    stream = Stream(Mock(), Random(0), _open={5: Ordinary(submit_s, 0, tmp_path / "job-5")})
    words: dict[str, Any] = {"struck": set(), "silent": set(), "since_s": 0.0, **at}
    words["since_s"] += submit_s
    for _ in range(2):  # at the second look for good
        late, wrong = stream.judge({5: element(0, "n1", state)}, {"n1"}, **words)
    said = {"late": late, "wrong": wrong, "beside": stream.beside}
    assert {what for what, there in said.items() if there} == found
    assert stream.failed == wrong
