"""Daemons, which are started, remembered and ended by process id, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.elastic.processes import end_within
from bftrainer_slurm.elastic.processes import processes_with as pids_with


@dataclass(frozen=True)
class Daemon:
    """A process of ours; its start time (clock ticks since boot) tells it from a later one."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return start_of(self.pid) == self.start


def start_of(pid: int) -> int | None:
    """Return when a process started; None: there is none, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def go_on(daemon: Daemon) -> None:
    """Let a daemon go on, and its nsenter too, which stops itself when its child is stopped."""
    with contextlib.suppress(OSError):
        parent = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[1]
        send_all([int(parent), daemon.pid], signal.SIGCONT)


def daemon_of(pid: int) -> Daemon | None:
    """Return the process that has this id now; None: there is none."""
    start = start_of(pid)
    return None if start is None else Daemon(pid, start)


def launch(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Daemon:
    """Start a daemon in the foreground; these variables are added to our own environment."""
    process = started(command, log, os.environ | (environment or {}), Path("/"))
    return Daemon(process.pid, start_of(process.pid) or -1)


def started(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], folder: Path
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, in a folder; its output is added to a log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )


def child_of(daemon: Daemon, timeout_s: float) -> Daemon:
    """Return the only child of a process that starts it and waits for it.

    If the process has ended, or starts none in this time, return the process itself.
    """
    deadline_s = time.monotonic() + timeout_s
    while daemon.alive and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
            child = daemon_of(int(listed[0])) if listed else None
            if child is not None:
                return child
        time.sleep(0.005)
    return daemon


def prefer_session(daemon: Daemon, nice: int) -> None:
    """Give a daemon's whole session the priority ``nice``.

    If the kernel groups processes by session, their own nice values count only within it.
    """
    with contextlib.suppress(OSError):  # a kernel that does not, or the daemon has ended already
        Path(f"/proc/{daemon.pid}/autogroup").write_text(str(nice))


def send(daemon: Daemon, number: signal.Signals) -> None:
    """Send a signal, if it is still the same process."""
    if daemon.alive:
        send_all([daemon.pid], number)


def send_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of these processes that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(daemons: Sequence[Daemon], within_s: float = 10.0) -> bool:
    """End daemons: SIGTERM, and SIGKILL for those that are still there after ``within_s``.

    Return whether none had to be killed.
    """
    running = [one.pid for one in daemons if one.alive]
    send_all(running, signal.SIGCONT)
    began_s = time.monotonic()
    end_within(within_s, running)
    for pid in running:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return time.monotonic() < began_s + within_s


def processes_with(variable: str) -> list[Daemon]:
    """Return the processes that have this ``NAME=value`` in their environment."""
    found = (daemon_of(pid) for pid in pids_with(variable) if pid != os.getpid())
    return [one for one in found if one is not None]
