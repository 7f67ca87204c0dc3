"""The end of what an element has printed, for a user who may read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer_slurm.cli import output
from bftrainer_slurm.cli.output import Output, last_output, newest
from bftrainer_slurm.slurm.run import SlurmRunner


def written(path: Path, text: str, at_s: float) -> str:
    path.write_text(text)
    os.utime(path, (at_s, at_s))
    return str(path)


def test_the_file_that_was_written_last_counts(tmp_path: Path) -> None:
    older = written(tmp_path / "0.out", "older\n", 1000)
    newer = written(tmp_path / "1.out", "starting\n\nno such file\n", 2000)
    assert newest({newer: None, older: None}) == Output(newer, ("starting", "no such file"))


def test_of_a_long_output_only_the_end_is_read(tmp_path: Path) -> None:
    long = written(tmp_path / "0.out", "x" * 10**6 + "\nno such file\n", 1000)
    found = newest({long: None})
    assert found is not None
    assert found.lines[-1] == "no such file"
    assert sum(map(len, found.lines)) < 20_000


def test_where_nothing_can_be_read_the_path_is_said_all_the_same(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none.out")
    assert newest({nowhere: None}) == Output(nowhere, ())
    assert newest({}) is None


def test_a_pipe_or_a_device_named_as_output_keeps_nobody_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero", str(tmp_path)):
        assert newest({path: None}) == Output(path, ())


def test_slurm_is_asked_for_the_paths_of_elements_that_have_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = written(tmp_path / "with a space_0.out", "no such file\n", 1000)
    told = (
        f"JobId=13 ArrayJobId=12\n   StdErr={mine}\n   StdIn=/dev/null\n   StdOut={mine}\n\n"
        f"JobId=12 ArrayJobId=12\n   StdErr={tmp_path}/4294967294.out\n"
    )
    monkeypatch.setattr(SlurmRunner, "read", lambda *_: told)
    assert last_output(12) == Output(mine, ("no such file",))


def test_where_slurm_does_not_answer_there_is_nothing_to_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert output.last_output(12) is None
