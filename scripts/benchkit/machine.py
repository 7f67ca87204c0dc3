"""The machine and how busy it is, and what a process uses of it, as Linux reports it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, today; ``yardstick`` is how long fixed pieces of work take (s), by name."""

    date: str
    cores: int
    processor: str
    load: float  # average over the last minute
    versions: dict[str, str]
    yardstick: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        where = f"{self.cores} cores, {self.processor}, load {self.load:.1f}"
        took = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in self.yardstick.items())
        return f"{self.date}: {where}, {versions}" + (f"; yardstick: {took}" if took else "")


def this_machine(*packages: str) -> Machine:
    """Return this machine, with the versions of Python and of these packages."""
    return Machine(
        date=date.today().isoformat(),
        cores=os.cpu_count() or 1,
        processor=_processor(),
        load=os.getloadavg()[0],
        versions={"Python": platform.python_version()} | {name: version(name) for name in packages},
    )


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the memory (resident) that a process has, in megabytes (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
