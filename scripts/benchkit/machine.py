"""The machine and how busy it is, as Linux reports it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, today."""

    date: str
    cores: int
    processor: str
    load: float  # average over the last minute
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"{self.date}: {self.cores} cores, {self.processor}, load {self.load:.1f}, {versions}"
        )


def this_machine(*packages: str) -> Machine:
    """Return this machine, with the versions of Python and of these packages."""
    return Machine(
        date=date.today().isoformat(),
        cores=os.cpu_count() or 1,
        processor=_processor(),
        load=os.getloadavg()[0],
        versions={"Python": platform.python_version()} | {name: version(name) for name in packages},
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
