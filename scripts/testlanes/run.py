"""Runs lanes side by side, each in a session of its own and within bounds, and ends them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NO_TEST = 5  # pytest's own exit code where there was none

_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY_BYTES = 4 << 30  # only the lane that takes more is ended
_PATIENCE_S = 60.0  # that an interrupted lane has to end by itself
_ENTER = 'for group in $1; do echo 0 > "$group/cgroup.procs"; done; shift; exec "$@"'
_RESULTS = re.compile(r"^([.FEsxX]+)(?= |$)", re.MULTILINE)
_FAILURES = re.compile(r"^=+ (?:ERRORS|FAILURES) =+\n(?s:.*?)(?=^=+ .* =+$|\Z)", re.MULTILINE)
_FAILURE = re.compile(r"^_+ (?!_ )\S.* _+\n(?s:.*?)(?=^_+ (?!_ )\S.* _+$|\Z)", re.MULTILINE)
_LAST_LINE = re.compile(r"^(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s", re.MULTILINE)


@dataclass(frozen=True)
class Lane:
    """A command that runs beside others, or ``alone``, when all others have ended.

    ``tests``: it runs pytest, and its tests are counted. ``matrix``: it needs another Slurm, or
    another system, than this host's. ``nightly``: no change has to pass it, unless one of the paths
    that it is ``of`` has changed in the last day.
    """

    name: str
    command: tuple[str, ...]
    alone: bool = False
    tests: bool = True
    matrix: bool = False
    nightly: bool = False
    of: tuple[str, ...] = ()


@dataclass
class Run:
    """A lane that has been started; its figures are complete when it has ``ended``."""

    lane: Lane
    log: Path
    groups: Sequence[Path]
    process: subprocess.Popen[bytes]
    begin_s: float = field(default_factory=time.monotonic)
    wall_s: float = 0.0
    processor_s: float = 0.0

    @property
    def text(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace")

    @property
    def results(self) -> int:
        """How many results there are so far, as pytest shows them: a character each."""
        return sum(map(len, _RESULTS.findall(self.text)))

    @property
    def counts(self) -> Counter[str]:
        """How many tests ``passed``, ``failed``, were ``skipped`` and so on, as pytest says."""
        lines = _LAST_LINE.findall(self.text)
        found = re.findall(r"(\d+) (\w+)", lines[-1] if lines else "")
        counts = Counter({word.removesuffix("s"): int(number) for number, word in found})
        counts["failed"] += counts.pop("error", 0)
        return counts

    @property
    def failures(self) -> list[str]:
        """pytest's text about each test that failed; if it has none, the whole output."""
        chapters = _FAILURES.findall(self.text)
        said = [one for chapter in chapters for one in _FAILURE.findall(chapter)]
        return said or ([self.text] if self.code else [])

    @property
    def code(self) -> int:
        """Its exit code; a lane of tests in which none ran has failed."""
        code = self.process.returncode
        none_ran = self.lane.tests and not self.counts["passed"]
        return NO_TEST if code == 0 and none_ran else code

    @property
    def outcome(self) -> str:
        """What became of it, in words; empty if it passed."""
        return f"FAILED with exit code {self.code}" if self.code else ""

    def ended(self) -> bool:
        """Whether it has ended."""
        if self.process.returncode is not None:
            return True
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.wall_s = time.monotonic() - self.begin_s
        # Groups also count processes for which nobody waits, such as fork servers.
        of_waited_for_s = usage.ru_utime + usage.ru_stime
        self.processor_s = max([of_waited_for_s, *map(_used_s, self.groups)])
        for group in self.groups:
            _remove(group)
        return True


def _end(runs: Sequence[Run]) -> None:
    """Interrupt them as a person does, and kill those that do not end."""
    for one in runs:
        if not one.ended():
            os.killpg(one.process.pid, signal.SIGINT)
    deadline_s = time.monotonic() + _PATIENCE_S
    while left := [one for one in runs if not one.ended()]:
        if time.monotonic() > deadline_s:
            for one in left:
                os.killpg(one.process.pid, signal.SIGKILL)
        time.sleep(0.1)


def run(
    lanes: Sequence[Lane],
    at_once: int,
    logs: Path,
    tell: Callable[[str], object],
    within_s: float = math.inf,
) -> list[Run]:
    """Run lanes in this order, ``at_once`` at a time; whatever happens, none outlives this call.

    Their outputs go to ``logs``; ``tell`` gets each when its lane ends, and once a minute how far
    all are. After ``within_s`` seconds it ends the lanes that run, and each waiting one once begun.
    """
    waiting, running, done = list(lanes), list[Run](), list[Run]()
    told_s = time.monotonic()
    end_s = told_s + within_s
    try:
        while waiting or running:
            while waiting and len(running) < at_once and not (waiting[0].alone and running):
                running.append(_start(waiting.pop(0), logs))
                tell(f"started {running[-1].lane.name}")
            time.sleep(0.2)
            if time.monotonic() > end_s:
                tell(f"ending what still runs after {clock(within_s)}")
                _end(running)
            for one in [one for one in running if one.ended()]:
                running.remove(one)
                done.append(one)
                _tell_end(one, tell)
            if running and time.monotonic() > told_s + 60:
                told_s = time.monotonic()
                far = ", ".join(f"{one.lane.name} {one.results}" for one in running)
                tell(f"{time.strftime('%H:%M')} {far}")
    finally:
        _end(running)
        for one in running:
            _tell_end(one, tell)
    return done


def _tell_end(one: Run, tell: Callable[[str], object]) -> None:
    cost = f"{clock(one.wall_s)}, {clock(one.processor_s)} of a processor"
    tell(f"\n==== {one.lane.name} {one.outcome or 'passed'} after {cost}\n{one.text}")


def clock(seconds: float) -> str:
    """Return a time as MINUTES:SECONDS."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _start(lane: Lane, logs: Path) -> Run:
    groups = _groups(lane.name)
    log = logs / f"{lane.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", _ENTER, "sh", " ".join(map(str, groups)), *lane.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Run(lane, log, groups, process)


def _remove(group: Path) -> None:
    """End what is left in a control group, and in those that were made within it.

    Raises:
        TimeoutError: a process does not end: it is frozen, say.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    for folder in sorted([group, *(one for one in group.rglob("*") if one.is_dir())], reverse=True):
        while left := (folder / "cgroup.procs").read_text().split():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{folder}: these processes do not end: {' '.join(left)}")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        folder.rmdir()


def _used_s(group: Path) -> float:
    """Return the seconds of a processor that a control group has used, if it counts them."""
    with contextlib.suppress(OSError):
        return int((group / "cpuacct.usage").read_text()) / 1e9
    with contextlib.suppress(OSError):
        found = re.search(r"^usage_usec (\d+)$", (group / "cpu.stat").read_text(), re.MULTILINE)
        return int(found[1]) / 1e6 if found else 0.0
    return 0.0


def _groups(name: str) -> list[Path]:
    """Make a lane's control groups: a bound for its memory, an equal share of the processors."""
    if os.getuid() != 0:
        return []
    if (_CGROUPS / "cgroup.controllers").exists():
        parents, limit = [_CGROUPS], "memory.max"
    else:
        # "cpu" and "cpuacct" are often one.
        kinds = [(_CGROUPS / kind).resolve() for kind in ("memory", "cpu", "cpuacct")]
        parents, limit = [*dict.fromkeys(kinds)], "memory.limit_in_bytes"
    groups = [parent / f"bftrainer-{os.getpid()}-{name}" for parent in parents]
    for group in groups:
        group.mkdir()
    (groups[0] / limit).write_text(str(_MEMORY_BYTES))
    return groups
