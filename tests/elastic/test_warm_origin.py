"""Workers forked from a copy of the agent: what they have of it, and what they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.torch

SCRIPT = """
import gc, os, sys, threading, types
sys.path.insert(0, {repo!r})
from bftrainer_slurm.elastic.rendezvous import preload, warm

preload._load = preload._rehearse_once = lambda: None  # of what a copy runs, no new Python

def run(script, *words):
    worker = origin.begin([script, *words], dict(os.environ), ["", ""])
    print("exit code", worker.wait(600), flush=True)

sys.modules["marker"] = types.ModuleType("marker")
{body}
"""
LOOK = "import sys; print('known' if 'marker' in sys.modules else 'new', flush=True)"


def said(folder: Path, *body: str, worker: str = LOOK) -> list[str]:
    """Run a script that has workers run ``worker``; return its lines."""
    (folder / "worker.py").write_text(textwrap.dedent(worker))
    script = folder / "script.py"
    script.write_text(SCRIPT.format(repo=str(REPO), body="\n".join(body)))
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},  # where a host's name is not known
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


START, RUN = "origin = warm.Origin()", "run('worker.py')"


def test_a_worker_has_what_the_agent_has_imported(tmp_path: Path) -> None:
    assert said(tmp_path, START, RUN) == ["known", "exit code 0"]


def test_an_agent_with_threads_is_not_copied(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        "event = threading.Event()",
        "threading.Thread(target=event.wait).start()",
        *(START, RUN),
        "event.set()",
    )
    assert lines == ["new", "exit code 0"]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_worker_may_have_workers_of_its_own(tmp_path: Path, method: str) -> None:
    worker = f"""
        import multiprocessing, sys

        def look():
            print("known" if "marker" in sys.modules else "new", flush=True)

        if __name__ == "__main__":
            child = multiprocessing.get_context({method!r}).Process(target=look)
            child.start()
            child.join()
    """
    lines = said(tmp_path, START, RUN, worker=worker)
    assert lines == ["known" if method == "fork" else "new", "exit code 0"]


def test_what_the_agent_was_about_to_say_is_said_once(tmp_path: Path) -> None:
    lines = said(tmp_path, "print('before', end=' ')", START, RUN)
    assert lines == ["before known", "exit code 0"]


def test_files_of_the_agent_are_its_own(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        "reader, writer = os.pipe()",
        *(START, RUN),
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
        *(START, RUN),
        worker="""
            import gc
            files = [open(__file__) for _ in range(64)]
            gc.collect()
            print(sum(bool(file.read()) for file in files), flush=True)
        """,
    )
    assert lines == ["64", "exit code 0"]


@pytest.mark.parametrize("files", [2, 3])
def test_what_a_library_opens_anew_at_each_fork_takes_no_workers_place(
    tmp_path: Path, files: int
) -> None:
    lines = said(
        tmp_path,
        "from bftrainer_slurm.elastic import torch_private",
        f"files = [open(__file__) for _ in range({files})]",
        "torch_private.has_libuv()",
        *(START, RUN),
    )
    assert lines == ["known", "exit code 0"]


def test_a_worker_that_a_signal_ends_is_seen_to_be(tmp_path: Path) -> None:
    worker = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert said(tmp_path, START, RUN, worker=worker) == ["exit code -15"]


def test_a_signal_to_all_processes_leaves_what_workers_are_forked_from(tmp_path: Path) -> None:
    lines = said(
        tmp_path,
        *(START, RUN),
        "for number in (1, 2, 3, 10, 12, 15): os.kill(origin.pid, number)",
        RUN,
    )
    assert lines == ["known", "exit code 0"] * 2


def test_where_it_was_killed_its_workers_are_ended_and_torchrun_starts_programs(
    tmp_path: Path,
) -> None:
    lines = said(
        tmp_path,
        START,
        "worker = origin.begin(['worker.py'], dict(os.environ), ['', ''])",
        "os.kill(origin.pid, 9)",
        "print(worker.wait(600))",
        "while origin.begin(['worker.py'], dict(os.environ), ['', '']) is not None: pass",
        worker="import time; time.sleep(600)",
    )
    assert lines == ["-9"]


def test_it_ends_with_a_killed_agent(tmp_path: Path) -> None:
    body = f"{START}; print(origin.pid, flush=True); threading.Event().wait()"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(repo=str(REPO), body=body))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        server = int(agent.stdout.readline())
        os.kill(server, 0)
        agent.send_signal(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{server}").exists())
