"""An agent that was told to end does all of its own, without the interpreter's teardown.

Nor do semaphores of killed ones pile up on a node.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bftrainer_slurm.elastic.rendezvous.endings import claim_semaphores
from scripts.labcluster.waiting import wait_until

SCRIPT = """
import atexit, multiprocessing, sys
from multiprocessing import forkserver, util
atexit.register(lambda: print("teardown"))  # as what torch registers as it is imported
from bftrainer_slurm.elastic.rendezvous.endings import claim_semaphores, end_now, end_soon

util.get_temp_dir()
forkserver.ensure_running()
{told}
print("last words")
{end}
"""


def ended(folder: Path, told: str, end: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(told=told, end=end)
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"TMPDIR": str(folder)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_what_was_told_to_end_leaves_out_the_teardown(tmp_path: Path) -> None:
    done = ended(tmp_path, "end_soon(7)", "raise KeyError('a signal')")
    assert done.returncode == 7
    assert done.stdout == "last words\n"
    assert "KeyError: 'a signal'" in done.stderr


def test_multiprocessing_leaves_nothing_behind_nevertheless(tmp_path: Path) -> None:
    ended(tmp_path, "end_soon(7)", "")
    assert list(tmp_path.iterdir()) == []


def test_who_ends_at_once_ends_though_the_main_thread_is_busy(tmp_path: Path) -> None:
    end = "import threading, time\nthreading.Thread(target=end_now, args=(7,)).start()\n"
    done = ended(tmp_path, "", f"sys.stdout.flush()\n{end}time.sleep(50)")
    assert (done.returncode, done.stdout) == (7, "last words\n")
    assert list(tmp_path.iterdir()) == []


def test_who_ends_at_once_leaves_no_worker(tmp_path: Path) -> None:
    child = (
        "worker = multiprocessing.get_context('forkserver').Process(target=input)\n"
        "worker.start()\nprint(worker.pid, flush=True)\nend_now(7)"
    )
    done = ended(tmp_path, "", child)
    worker = int(done.stdout.split()[-1])
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


def test_who_ends_at_once_leaves_no_semaphore_and_no_complaint_of_one(tmp_path: Path) -> None:
    made = (
        "claim_semaphores()\n"
        "lock = multiprocessing.get_context('forkserver').Lock()\n"
        "import os\nprint(os.getpid(), flush=True)\nend_now(7)"
    )
    done = ended(tmp_path, "", made)
    assert done.stderr == ""
    assert list(Path("/dev/shm").glob(f"sem.bftrainer-{done.stdout.split()[-1]}-*")) == []


def test_a_process_that_ends_by_itself_ends_as_ever(tmp_path: Path) -> None:
    done = ended(tmp_path, "", "sys.exit(3)")
    assert done.returncode == 3
    assert done.stdout == "last words\nteardown\n"


def test_a_forked_child_is_not_ended_by_it(tmp_path: Path) -> None:
    child = "multiprocessing.get_context('fork').Process(target=print, args=('child',)).start()"
    done = ended(tmp_path, "", child)
    assert done.returncode == 0
    assert "child\n" in done.stdout


_KILLED = """
import multiprocessing, os, signal
from bftrainer_slurm.elastic.rendezvous.endings import claim_semaphores
claim_semaphores()
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
    claim_semaphores()
    assert not path.exists()


def test_fresh_ones_stay_as_somebody_may_be_about_to_open_them() -> None:
    path = left_by_killed_process()
    claim_semaphores()
    assert path.exists()
    path.unlink()


def test_those_of_living_processes_stay(tmp_path: Path) -> None:
    path = tmp_path / f"sem.bftrainer-{os.getpid()}-abc"
    path.touch()
    os.utime(path, (0, 0))
    claim_semaphores(tmp_path)
    assert path.exists()
