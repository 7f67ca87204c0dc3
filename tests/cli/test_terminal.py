"""Help, completion and colour: what every command shares."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bftrainer_slurm.cli.terminal import styled, width, wrapped

# What only some commands need, and takes long to load.
HEAVY = {"numpy", "ClusterShell", "torch", "mip", "sqlite3", "asyncio", "bftrainer_slurm.planner"}


def test_help_loads_nothing_that_takes_long() -> None:
    """By Python's own account."""
    command = (sys.executable, "-X", "importtime", "-m", "bftrainer_slurm", "--help")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "bftrainer_slurm.cli" in loaded
    assert not loaded & HEAVY


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
