"""What works where the package was installed without its extras, and what the others ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.pasts import write_past

EXTRAS = (
    "mip",
    "numpy",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "jinja2",
    "matplotlib",
    "pyarrow",
    "torch",
    "pyslurm",
)
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))  # an import of these fails, as if they were not there
from bftrainer_slurm.cli import main
main(sys.argv[1:])
"""


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    "command",
    [
        *("submit", "status", "show", "history", "explain", "logs", "doctor"),
        *("plan", "controller", "keeper", "reader"),
    ],
)
def test_a_command_says_without_extras_how_it_is_called(command: str) -> None:
    done = call(command, "--help")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("plan", "/dev/null"), "controller"),
        (("controller",), "controller"),
        (("reader",), "controller"),
        (("assess", "--help"), "replay"),
        (("replay", "--help"), "replay"),
    ],
)
def test_a_command_that_needs_an_extra_names_it_in_one_line(
    words: tuple[str, ...], extra: str
) -> None:
    done = call(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"install bftrainer-slurm[{extra}], in a clone: pip install '.[{extra}]'")


def test_of_a_trainers_pictures_only_those_in_files_need_an_extra(tmp_path: Path) -> None:
    write_past(tmp_path)
    words = ("history", "12", "--state", str(tmp_path), "--plot")
    assert call(*words, "-").returncode == 0
    done = call(*words, str(tmp_path / "story.png"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == (
        "bftrainer: matplotlib is missing: install bftrainer-slurm[plot], in a clone: "
        "pip install '.[plot]'"
    )
