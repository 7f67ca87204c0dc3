"""Workers forked from a copy of the agent: what they have of it, and what they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.rendezvous import warm
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

SCRIPT = """
import gc, multiprocessing, os, sys, tempfile, threading, types
from multiprocessing import forkserver
sys.path.insert(0, {repo!r})
from bftrainer_slurm.elastic.rendezvous import warm

forks = multiprocessing.get_context("forkserver")

def run(target, *arguments):
    process = forks.Process(target=target, args=arguments)
    process.start()
    process.join()
    print("exit code", process.exitcode, flush=True)

def look():
    print("known" if "marker" in sys.modules else "new", flush=True)

def tell_temporary_folder():
    print(tempfile.gettempdir(), flush=True)

def open_files_and_collect():
    files = [open(__file__) for _ in range(64)]
    gc.collect()
    print(sum(bool(file.read()) for file in files), flush=True)

def have_a_child(method):
    child = multiprocessing.get_context(method).Process(target=look)
    child.start()
    child.join()

if __name__ == "__main__":
    sys.modules["marker"] = types.ModuleType("marker")
    {body}
"""


def said(folder: Path, *body: str) -> list[str]:
    """Run a script; return its lines."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(repo=str(REPO), body="\n    ".join(body)))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "argv"),
    [
        (["python", "-I", "-c", "main()"], ["torchrun", "train.py"]),
        (["python", "-c", "main()", "torchrun", "x.py"], ["-c", "torchrun", "x.py"]),
    ],
    ids=["3.13", "3.14"],
)
def test_what_multiprocessing_has_it_run(arguments: list[str], argv: list[str]) -> None:
    assert warm.program(arguments, ["torchrun", "train.py"]) == ("main()", argv)


def test_a_worker_has_what_the_agent_has_imported(tmp_path: Path) -> None:
    assert said(tmp_path, "warm.ensure_running()", "run(look)") == ["known", "exit code 0"]


def test_a_long_tmpdir_is_no_hindrance_and_stays_the_workers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux allows the path of a socket 107 characters."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert said(tmp_path, "warm.ensure_running()", "run(tell_temporary_folder)") == [
        str(folder),
        "exit code 0",
    ]


def test_an_agent_with_threads_is_not_copied(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        "event = threading.Event()",
        "threading.Thread(target=event.wait).start()",
        "warm.ensure_running()",
        "run(look)",
        "event.set()",
    )
    assert lines == ["new", "exit code 0"]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_worker_may_have_workers_of_its_own(tmp_path: Path, method: str) -> None:
    lines = said(tmp_path, "warm.ensure_running()", f"run(have_a_child, {method!r})")
    assert lines == ["known" if method == "fork" else "new", "exit code 0"]


def test_what_the_agent_was_about_to_say_is_said_once(tmp_path: Path) -> None:
    lines = said(tmp_path, "print('before', end=' ')", "warm.ensure_running()", "run(look)")
    assert lines == ["before known", "exit code 0"]


def test_files_of_the_agent_are_its_own(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        "reader, writer = os.pipe()",
        "warm.ensure_running()",
        "run(look)",
        "os.close(writer)",
        "print(os.read(reader, 1))",  # would wait for ever for who else holds the other end
    )
    assert lines == ["known", "exit code 0", "b''"]


def test_garbage_of_the_agent_closes_no_file_of_a_worker(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        "gc.disable()",
        "garbage = [open(__file__) for _ in range(32)]",
        "garbage.append(garbage)",
        "del garbage",
        "warm.ensure_running()",
        "run(open_files_and_collect)",
    )
    assert lines == ["64", "exit code 0"]


@pytest.mark.parametrize("files", [2, 3])
def test_what_a_library_opens_anew_at_each_fork_takes_no_workers_place(
    tmp_path: Path, files: int
) -> None:
    opened = f"files = [open(__file__) for _ in range({files})]"
    lines = said(
        tmp_path,
        "os.environ['TORCH_CPP_LOG_LEVEL'] = 'ERROR'",  # where a host's name is not known
        "from bftrainer_slurm.elastic import torch_private",
        opened,
        "torch_private.has_libuv()",
        "warm.start()",
        "run(look)",
    )
    assert lines == ["known", "exit code 0"]


def test_locks_that_are_shared_with_a_worker_leave_nothing_behind(tmp_path: Path) -> None:
    lines = said(tmp_path, "warm.ensure_running()", "run(print, forks.Lock())")
    assert lines[-1] == "exit code 0"


def test_the_server_ends_with_a_killed_agent(tmp_path: Path) -> None:
    body = "warm.ensure_running(); print(forkserver._forkserver._forkserver_pid, flush=True)"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(repo=str(REPO), body=f"{body}; threading.Event().wait()"))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        server = int(agent.stdout.readline())
        os.kill(server, 0)
        agent.send_signal(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{server}").exists())
