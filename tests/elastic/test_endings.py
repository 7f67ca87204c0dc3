"""An agent that was told to end does all of its own, without the interpreter's teardown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import atexit, multiprocessing, sys
from multiprocessing import forkserver, util
atexit.register(lambda: print("teardown"))  # as what torch registers as it is imported
from bftrainer_slurm.elastic.rendezvous.endings import end_now, end_soon

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


def test_a_process_that_ends_by_itself_ends_as_ever(tmp_path: Path) -> None:
    done = ended(tmp_path, "", "sys.exit(3)")
    assert done.returncode == 3
    assert done.stdout == "last words\nteardown\n"


def test_a_forked_child_is_not_ended_by_it(tmp_path: Path) -> None:
    child = "multiprocessing.get_context('fork').Process(target=print, args=('child',)).start()"
    done = ended(tmp_path, "", child)
    assert done.returncode == 0
    assert "child\n" in done.stdout
