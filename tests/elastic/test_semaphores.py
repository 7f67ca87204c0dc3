"""Semaphores of killed agents do not pile up on a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bftrainer_slurm.elastic.rendezvous.semaphores import claim

_KILLED = """
import multiprocessing, os, signal
from bftrainer_slurm.elastic.rendezvous.semaphores import claim
claim()
lock = multiprocessing.get_context("forkserver").Lock()
from multiprocessing import resource_tracker
os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_killed_process() -> Path:
    process = subprocess.Popen([sys.executable, "-c", _KILLED])
    process.wait()
    (path,) = Path("/dev/shm").glob(f"sem.bftrainer-{process.pid}-*")
    return path


def test_those_of_a_killed_process_are_removed_by_the_next_one() -> None:
    path = left_by_killed_process()
    os.utime(path, (0, 0))
    claim()
    assert not path.exists()


def test_fresh_ones_stay_as_somebody_may_be_about_to_open_them() -> None:
    path = left_by_killed_process()
    claim()
    assert path.exists()
    path.unlink()


def test_those_of_living_processes_stay(tmp_path: Path) -> None:
    path = tmp_path / f"sem.bftrainer-{os.getpid()}-abc"
    path.touch()
    os.utime(path, (0, 0))
    claim(tmp_path)
    assert path.exists()
