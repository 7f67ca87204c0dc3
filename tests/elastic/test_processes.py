"""A job's other processes and its memory, signals to this process, what we write into a log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory_left import memory_left
from bftrainer_slurm.elastic.processes import below, end_within
from bftrainer_slurm.elastic.signals import on_signals

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


@pytest.fixture
def events() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Whether SIGUSR1 was heard, and whether a handler that was installed later has run."""
    heard, handled = threading.Event(), threading.Event()
    on_signals({signal.SIGUSR1}, heard.set)
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(number, lambda number, frame: handled.set()) for number in numbers]
    yield heard, handled
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)


@pytest.mark.parametrize(("number", "ours"), [(signal.SIGUSR1, True), (signal.SIGUSR2, False)])
def test_a_signal_is_heard_beside_a_handler_and_others_are_passed_over(
    events: tuple[threading.Event, threading.Event], number: signal.Signals, ours: bool
) -> None:
    heard, handled = events
    os.kill(os.getpid(), number)
    assert handled.wait(120)
    assert heard.wait(120 if ours else 0.2) == ours


def test_a_signal_to_a_forked_process_is_not_for_the_one_that_it_was_forked_from(
    events: tuple[threading.Event, threading.Event],
) -> None:
    child = multiprocessing.get_context("fork").Process(
        target=lambda: os.kill(os.getpid(), signal.SIGUSR1)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    assert not events[0].wait(0.5)


def test_a_line_says_who_speaks_whatever_is_in_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    print("before", end=" ", file=sys.stderr)
    say("n1 came \udce4")
    assert capfd.readouterr().err == "before bftrainer: n1 came \\udce4\n"


def test_a_process_without_a_log_goes_on_and_its_own_files_are_left_alone(tmp_path: Path) -> None:
    """Descriptor 2 is the first file that it opens."""
    own = tmp_path / "own"
    code = (
        "import os, sys; from bftrainer_slurm.elastic.log import say; "
        f"file = os.open({str(own)!r}, os.O_CREAT | os.O_WRONLY); assert file == 2; say('hello')"
    )
    closed = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    assert subprocess.run(closed, check=False).returncode == 0
    assert own.read_text() == ""


MEMINFO = "MemTotal: 100 kB\nMemAvailable:     90 kB\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "left"),
    [
        ("0::/\n", {}, 90 * 1024),
        ("0::/job/step\n", {"job/memory.max": 50000, "job/memory.current": 30000}, 21000),
        ("0::/job\n", {"job/memory.max": "max", "job/memory.current": 30000}, 90 * 1024),
        (
            "3:cpu,memory:/job\n1:name=systemd:/\n",
            {"memory/job/memory.limit_in_bytes": 9000, "memory/job/memory.usage_in_bytes": 4000},
            6000,
        ),
    ],
    ids=["no limit", "of the job", "a job without one", "cgroup v1"],
)
def test_a_job_has_as_much_memory_left_as_its_host_and_its_limits_say(
    tmp_path: Path, cgroup: str, files: dict[str, object], left: int
) -> None:
    all_files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup}
    for name, text in files.items():
        all_files[f"sys/fs/cgroup/{name}"] = f"{text}\n"
        folder = name.rpartition("/")[0]
        all_files[f"sys/fs/cgroup/{folder}/memory.stat"] = "anon 7\ninactive_file 1000\n"
    for name, text in all_files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_left(tmp_path) == left
