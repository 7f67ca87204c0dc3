"""What works where the package was installed without its extras, and what the others ask for."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
