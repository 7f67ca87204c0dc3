"""What a process takes of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from scripts.benchkit.machine import children_cpu_s, cpu_s, memory_mb

BUSY = "while True: pass"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
PATIENCE_S = 60.0


def test_the_processor_time_of_children_and_of_theirs_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True) as parent:
        try:
            until_s = time.monotonic() + PATIENCE_S
            while children_cpu_s(parent.pid) < 0.1 and time.monotonic() < until_s:
                time.sleep(0.05)
            below_s, own_s = children_cpu_s(parent.pid), cpu_s(parent.pid)
            assert below_s >= 0.1
            assert children_cpu_s(os.getpid()) >= below_s + own_s
        finally:
            os.killpg(parent.pid, 9)


def test_memory_that_is_used_counts() -> None:
    before_mb = memory_mb(os.getpid())
    kept = bytearray(os.urandom(30_000_000))
    assert memory_mb(os.getpid()) - before_mb > 20
    assert len(kept) == 30_000_000
