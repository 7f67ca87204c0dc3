"""What all commands have in common: help, full disks, Ctrl-C, texts of others."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

import bftrainer_slurm
from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.common import fail_if_unreadable
from bftrainer_slurm.cli.controller import oserror_message
from bftrainer_slurm.cli.show import lines as lines_of_trainer
from bftrainer_slurm.cli.status import status_lines
from tests.cli.documents import DOCUMENT, SHOWN
from tests.tools import program


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize("words", ["--help", "plan --help", "controller --example"])
def test_a_full_disk_at_standard_output_is_said_in_a_line(words: str) -> None:
    command = [sys.executable, "-m", "bftrainer_slurm", *words.split()]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "bftrainer: standard output: No space left on device\n"


def test_a_full_disk_is_not_taken_for_a_status_of_another_version() -> None:
    with pytest.raises(OSError, match="full"), fail_if_unreadable():
        raise OSError(errno.ENOSPC, "full")


def test_ctrl_c_ends_a_command_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("bftrainer_slurm.cli.status.current_status", interrupted)
    result = call("status")
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_each_page_that_a_message_names_is_here() -> None:
    root = Path(bftrainer_slurm.__file__).parents[1]
    texts = [
        re.sub(r'"\s+f?"', "", path.read_text()) for path in root.glob("bftrainer_slurm/**/*.py")
    ]
    named = {name for text in texts for name in re.findall(r"docs/[a-z0-9/-]+\.md", text)}
    assert len(named) > 5
    assert [name for name in named if not (root / name).is_file()] == []


UNREADABLE = [
    {"trainers": None},
    {"trainers": [{"array": 9}]},
    {"trainers": [SHOWN | {"submit_s": 1e300}]},
    {"pool": 3},
]


@pytest.mark.parametrize("changed", UNREADABLE, ids=lambda changed: ascii(changed)[:40])
def test_a_status_that_cannot_be_read_is_said_in_a_line(
    changed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, fail_if_unreadable():
        document: dict[str, Any] = DOCUMENT | changed
        list(status_lines(document))
        list(lines_of_trainer(document["trainers"][0]))
    assert ended.value.code == 3
    assert capsys.readouterr().err.count("\n") == 1


SHARED, OTHER = "'shared' of bftrainer.toml", "another folder with --state"


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        *((path, SHARED) for path in ("/shared/bf/controller.json", "/shared/bf")),
        *((path, OTHER) for path in ("/state/keeper.token", "/shared/bftrainer/token", None)),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_remedy(path: str | None, remedy: str) -> None:
    said = oserror_message(OSError(13, "Permission denied", path), Path("/state"), "/shared/bf")
    assert said.startswith(f"{path or '/state'}: Permission denied; ")
    assert remedy in said


def test_a_site_takes_trainers_by_sbatch(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "bftrainer.toml").write_text('partition = "idle"\n')
    path = tmp_path / "train.sh"
    path.write_text("#!/bin/sh\nsrun torchrun train.py\n")
    program(tmp_path, "sbatch", 'echo "$@" >> $0.told; wc -l < $0.told')
    program(tmp_path, "squeue", "echo x")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ("submit", "--bftrainer=weight=2", "-N", "2-4", "--array=4-5%1", str(path))
    result = call(*words)
    assert result.stdout == "Submitted trainer 1 for task 4\nSubmitted trainer 2 for task 5\n"
    assert "each of the 2 tasks of --array is a trainer by itself" in result.stderr
    assert "%1 of --array does not hold" in result.stderr
    told = "--parsable --bftrainer=weight=2 --nodes=2-4 --array=4-5%1 --array={} {}\n"
    assert (tmp_path / "sbatch.told").read_text() == told.format(4, path) + told.format(5, path)
    found = json.loads(call("submit", "--json", *words[1:]).stdout)
    assert (found["array"], [one["array"] for one in found["trainers"]]) == (3, [3, 4])
    assert "in which partition?" in call("submit", "--personal", "-N", "2-4", str(path)).stderr
    path.write_text("#!/bin/sh\n#SBATCH --job-name='odd\nsrun torchrun train.py\n")
    result = call(*words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), "a directive out of order"
