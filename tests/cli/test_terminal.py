"""Help, completion and colour: what every command shares."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bftrainer_slurm.cli.terminal import styled, width, wrapped

BFTRAINER = (sys.executable, "-m", "bftrainer_slurm")
# What only some commands need, and takes long to load.
HEAVY = {"numpy", "ClusterShell", "torch", "mip", "sqlite3", "asyncio", "bftrainer_slurm.planner"}


def imported(*arguments: str, **environment: str) -> set[str]:
    """Return the modules that a command loads, by Python's own account."""
    command = (sys.executable, "-X", "importtime", *BFTRAINER[1:], *arguments)
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0
    assert done.stdout
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def completed(*words: str) -> list[str]:
    """Return what a shell is told to complete the last of these words to."""
    environment = {
        "COMP_WORDS": " ".join(("bftrainer", *words)),
        "COMP_CWORD": str(len(words)),
        "_BFTRAINER_COMPLETE": "bash_complete",
    }
    code = "from bftrainer_slurm.cli import main; main(prog_name='bftrainer')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_help_loads_nothing_that_takes_long() -> None:
    assert not imported("--help") & HEAVY


def test_commands_for_users_do_without_numpy_and_torch() -> None:
    for command in ("status", "show", "history", "explain", "logs", "doctor"):
        assert not imported(command, "--help") & {"numpy", "torch", "mip", "matplotlib"}, command


def test_commands_and_their_options_are_completed() -> None:
    assert completed("ex") == ["explain"]
    assert {"submit", "doctor", "logs"} <= set(completed(""))
    assert "--config" in completed("doctor", "--c")


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colour_is_for_terminals_whose_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str, coloured: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    assert (styled("word", fg="red") != "word") is coloured


def test_text_is_wrapped_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert width() == 60
    lines = wrapped("word " * 40, 4)
    assert all(line.startswith("    word") and len(line) <= 60 for line in lines)
