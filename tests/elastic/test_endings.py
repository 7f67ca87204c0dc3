"""An agent that was told to end does all of its own, without the interpreter's teardown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import atexit, multiprocessing, sys
atexit.register(lambda: print("teardown"))  # as what torch registers as it is imported
from bftrainer_slurm.elastic.rendezvous.agent import end_soon

{told}
print("last words")
{end}
"""


def ended(told: str, end: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(told=told, end=end)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_what_was_told_to_end_leaves_out_the_teardown() -> None:
    done = ended("end_soon(7)", "raise KeyError('a signal')")
    assert done.returncode == 7
    assert done.stdout == "last words\n"
    assert "KeyError: 'a signal'" in done.stderr


def test_a_process_that_ends_by_itself_ends_as_ever() -> None:
    done = ended("", "sys.exit(3)")
    assert done.returncode == 3
    assert done.stdout == "last words\nteardown\n"


def test_a_forked_child_is_not_ended_by_it() -> None:
    child = "multiprocessing.get_context('fork').Process(target=print, args=('child',)).start()"
    done = ended("", child)
    assert done.returncode == 0
    assert "child\n" in done.stdout
