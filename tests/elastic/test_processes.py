"""Who of a process group would do something about a signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import signal, subprocess, sys
from bftrainer_slurm.elastic.processes import group_catches

signal.signal(signal.SIGTERM, lambda number, frame: None)  # its own does not count
mate = subprocess.Popen(
    [sys.executable, "-c", {mate!r}], stdout=subprocess.PIPE, start_new_session={elsewhere}
)
mate.stdout.readline()
print(group_catches(signal.SIGTERM))
mate.kill()
"""
WAIT = "print(flush=True); import time; time.sleep(50)"


@pytest.mark.parametrize(
    ("handler", "elsewhere", "caught"),
    [
        ("signal.SIG_DFL", False, "False"),
        ("signal.SIG_IGN", False, "False"),
        ("print", False, "True"),
        ("print", True, "False"),
    ],
    ids=["nobody has a handler", "one ignores it", "one has a handler", "one of another group has"],
)
def test_only_a_handler_of_a_process_in_the_group_counts(
    handler: str, elsewhere: bool, caught: str
) -> None:
    mate = f"import signal; signal.signal(signal.SIGTERM, {handler}); {WAIT}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(mate=mate, elsewhere=elsewhere)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        check=True,
    )
    assert done.stdout.strip() == caught
