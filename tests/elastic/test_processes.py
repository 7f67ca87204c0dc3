"""Which processes there are below one, and how processes are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from bftrainer_slurm.elastic.processes import below, end_within

WAIT = "print(flush=True); import time; time.sleep(50)"


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
    assert not {shell.pid, child} & set(below(os.getpid(), spare=[shell.pid]))
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
