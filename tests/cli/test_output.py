"""The end of what elements have written, for a user who may read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer_slurm.cli.tail import LastOutput, folder_exists, last_output, newest_output
from bftrainer_slurm.elastic.log import WAITS
from bftrainer_slurm.slurm.outputs import Output


def written(path: Path, text: str, at_s: float) -> Output:
    path.write_text(text)
    os.utime(path, (at_s, at_s))
    return Output(0, (path,), "n1")


def test_the_file_that_was_written_last_counts(tmp_path: Path) -> None:
    older = written(tmp_path / "0.out", "older\n", 1000)
    newer = written(tmp_path / "1.out", "starting\n\nno such file\n", 2000)
    found = LastOutput(str(tmp_path / "1.out"), ("starting", "no such file"))
    assert newest_output([newer, older]) == newest_output([older, newer]) == found


def test_what_a_node_that_waits_says_is_not_the_scripts(tmp_path: Path) -> None:
    waiting = f"bftrainer: {WAITS}\n"
    script = written(tmp_path / "0.out", f"{waiting}no such file\n{waiting}", 1000)
    ours = written(tmp_path / "1.out", f"bftrainer: no launcher\n{waiting}", 2000)
    waits = written(tmp_path / "2.out", waiting, 3000)
    found = LastOutput(str(tmp_path / "0.out"), ("no such file",))
    assert newest_output([waits, ours, script]) == found
    assert newest_output([waits, ours]) == LastOutput(
        str(tmp_path / "1.out"), ("bftrainer: no launcher",)
    )
    assert newest_output([waits]) == LastOutput(str(tmp_path / "2.out"), ())


def test_of_a_long_output_only_the_end_is_kept(tmp_path: Path) -> None:
    found = newest_output([written(tmp_path / "0.out", "x\n" * 10**5 + "no such file\n", 1000)])
    assert found is not None
    assert (found.lines[-1], len(found.lines)) == ("no such file", 20)


def test_where_nothing_can_be_read_a_path_is_said_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    for path in (tmp_path / "1.out", pipe, Path("/dev/zero"), tmp_path):  # none keeps us waiting
        waits, ran = Output(0, (tmp_path / "0.out",)), Output(1, (path,), "n1")
        assert newest_output([waits, ran]) == LastOutput(str(path), ())
    assert newest_output([]) is None
    monkeypatch.setenv("PATH", str(tmp_path))  # where no Slurm answers
    assert last_output(12) is None


def test_a_folder_that_is_not_there_is_told_from_one_that_this_user_may_not_see(
    tmp_path: Path,
) -> None:
    assert folder_exists(str(tmp_path / "7.out"))
    assert not folder_exists(str(tmp_path / "logs" / "7.out"))
    assert folder_exists("/" + "x" * 300 + "/7.out")  # it cannot be known
