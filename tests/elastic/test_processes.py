"""Who would do something about a signal, and how processes are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bftrainer_slurm.elastic.processes import any_catches, below, end_within

WAIT = "print(flush=True); import time; time.sleep(50)"


@pytest.mark.parametrize(
    ("handler", "caught"),
    [("signal.SIG_DFL", False), ("signal.SIG_IGN", False), ("print", True)],
    ids=["it has no handler", "it ignores it", "it has a handler"],
)
def test_only_a_handler_of_its_own_counts(handler: str, caught: bool) -> None:
    script = f"import signal; signal.signal(signal.SIGTERM, {handler}); {WAIT}"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert any_catches([process.pid], signal.SIGTERM) == caught
        process.kill()
    assert not any_catches([process.pid], signal.SIGTERM), "it has ended"


def test_processes_are_told_to_end_and_those_that_do_not_are_killed() -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAIT}"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        for code in (WAIT, deaf)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    end_within(0.5, [process.pid for process in processes])
    assert [process.poll() for process in processes] == [-signal.SIGTERM, -signal.SIGKILL]


def test_those_below_a_process_are_its_children_and_theirs() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 100 & echo; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    assert shell.pid in below(os.getpid())
    (child,) = below(shell.pid)
    assert child in below(os.getpid())
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
