"""What rests on torch's own code: workers forked from a copy of the agent, and private places.

What workers have of the agent and what they do not; on which versions torch's private places were
seen, and what follows where one is missing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic import torch_private
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.torch

SCRIPT = """
import gc, os, sys, threading, types
sys.path.insert(0, {repo!r})
from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.rendezvous import preload, warm

preload._load = preload._rehearse_once = lambda: None  # of what a copy runs, no new Python

def run(script):
    worker = origin.begin([f"{{script}}.py"], dict(os.environ), ["", ""])
    print("exit code", worker.wait(600), flush=True)

sys.modules["marker"] = types.ModuleType("marker")
{body}
"""
START = "origin = warm.Origin()"
LOOK = "print('known' if 'marker' in __import__('sys').modules else 'new', flush=True)"
CHILD = f"""
import multiprocessing

def look():
    {LOOK}

if __name__ == "__main__":
    child = multiprocessing.get_context("METHOD").Process(target=look)
    child.start()
    child.join()
"""
FILES = """
import gc
files = [open(__file__) for _ in range(64)]
gc.collect()
print(sum(bool(file.read()) for file in files), flush=True)
"""
WORKERS = {
    "look": LOOK,
    "files": FILES,
    "writes": """
import sys
sys.files = [open(f"own{n}", "w") for n in range(64)]  # as a library's: they end after the script's
for file in sys.files:
    file.write("own")
""",
    "ended": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "waits": "import time; time.sleep(600)",
    **{method: CHILD.replace("METHOD", method) for method in ("fork", "forkserver", "spawn")},
}


def begin(folder: Path, body: Sequence[str]) -> Path:
    """Return a script that is an agent and does all this, beside those of its workers."""
    for name, text in WORKERS.items():
        (folder / f"{name}.py").write_text(text)
    (script := folder / "agent.py").write_text(SCRIPT.format(repo=str(REPO), body="\n".join(body)))
    return script


def said(folder: Path, *body: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, begin(folder, body)],
        cwd=folder,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},  # where a host's name is not known
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


# What one agent does, and what is printed then.
STAGES: dict[str, tuple[str, list[str]]] = {
    "a worker has what the agent has imported, and what it was about to say is said once": (
        "print('before', end=' ')\n"
        "reader, writer = os.pipe()\n"
        "gc.disable()\n"
        "garbage = [open(__file__) for _ in range(32)]\n"
        "garbage.append(garbage)\n"
        "del garbage\n"
        f"{START}\nrun('look')",
        ["before known", "exit code 0"],
    ),
    "files of the agent are its own": (
        "os.close(writer)\n"
        "print(os.read(reader, 1))",  # would wait for ever for who else holds the other end
        ["b''"],
    ),
    "garbage of the agent closes no file of a worker": ("run('files')", ["64", "exit code 0"]),
    "a worker may fork workers": ("run('fork')", ["known", "exit code 0"]),
    "and have a fork server": ("run('forkserver')", ["new", "exit code 0"]),
    "and start others anew": ("run('spawn')", ["new", "exit code 0"]),
    "that a signal ended one is seen": ("run('ended')", ["exit code -15"]),
    "a signal to all leaves what workers are forked from": (
        "for number in (1, 2, 3, 10, 12, 15): os.kill(origin.pid, number)\nrun('look')",
        ["known", "exit code 0"],
    ),
}


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is printed in each."""
    body = [f"{text}\nprint('==')" for text, _ in STAGES.values()]
    return "\n".join(said(tmp_path_factory.mktemp("agent"), *body)).split("\n==")


@pytest.mark.parametrize(
    ("number", "printed"), list(enumerate(one for _, one in STAGES.values())), ids=STAGES
)
def test_of_one_agent(stages: list[str], number: int, printed: list[str]) -> None:
    assert stages[number].split() == " ".join(printed).split()


def test_no_open_file_of_the_agent_takes_or_spoils_what_a_worker_writes(tmp_path: Path) -> None:
    opens = "files = [open(f'agents{n}', 'w') for n in range(8)]"
    lines = said(
        tmp_path,
        opens,
        "for file in files: file.write('agent')",
        START,
        "run('writes')",
        "del files",
    )
    assert lines == ["exit code 0"]
    assert {path.read_text() for path in tmp_path.glob("own*")} == {"own"}
    assert {path.read_text() for path in tmp_path.glob("agents*")} == {"agent"}


def test_an_agent_with_threads_is_not_copied(tmp_path: Path) -> None:
    begins = ("event = threading.Event()", "threading.Thread(target=event.wait).start()")
    lines = said(tmp_path, *begins, START, "run('look')", "event.set()")
    assert lines == ["new", "exit code 0"]


@pytest.mark.parametrize("files", [2, 3])
def test_what_a_library_opens_anew_at_each_fork_takes_no_workers_place(
    tmp_path: Path, files: int
) -> None:
    opens = f"files = [open(__file__) for _ in range({files})]"
    lines = said(tmp_path, opens, "torch_private.has_libuv()", START, "run('look')")
    assert lines == ["known", "exit code 0"]


def test_where_it_was_killed_its_workers_are_ended_and_torchrun_starts_programs(
    tmp_path: Path,
) -> None:
    worker = "origin.begin(['waits.py'], dict(os.environ), ['', ''])"
    killed = (f"worker = {worker}", "os.kill(origin.pid, 9)", "print(worker.wait(600))")
    assert said(tmp_path, START, *killed, f"while {worker} is not None: pass") == ["-9"]


def test_it_ends_with_a_killed_agent(tmp_path: Path) -> None:
    script = begin(tmp_path, [START, "print(origin.pid, flush=True)", "threading.Event().wait()"])
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        server = int(agent.stdout.readline())
        os.kill(server, 0)
        agent.send_signal(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{server}").exists())


SEEN = ("2.6", "2.9", "2.13", "2.14", "2.15")


def test_this_torch_is_named_among_those_seen() -> None:
    """A torch that fails here is added to SEEN once the tests in this folder have passed on it."""
    assert torch.__version__.startswith(SEEN)


def test_no_other_module_uses_a_private_place() -> None:
    begins = r"\b(?:torch|dist|distributed)(?:\.\w+)*"
    private = re.compile(rf"{begins}\._(?!_version__)\w+|from torch[\w.]* import [^#\n]*\b_\w+")
    for path in Path(elastic.__path__[0]).rglob("*.py"):
        if path.name != "torch_private.py":
            code = re.sub(r'#.*|"[^"\n]*"', "", path.read_text())
            assert private.findall(code) == [], path.name


def test_where_torch_lists_its_groups_in_another_way_a_script_destroys_its_own_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destroy = dist.destroy_process_group
    monkeypatch.setattr(dist, "destroy_process_group", destroy)
    monkeypatch.setattr(dist.distributed_c10d, "_world", object())
    torch_private.keep_groups()
    assert dist.destroy_process_group is destroy


def test_a_torch_that_starts_its_workers_in_another_way_says_that_changes_take_longer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    monkeypatch.setattr(subprocess_handler, "SubprocessHandler", object)
    torch_private.fork_workers(lambda *_: None)
    said = "bftrainer: this torch starts each process anew, so a change of nodes takes longer"
    assert capfd.readouterr().err.startswith(said)
