"""What was measured on, and how busy it was: figures mean little without it."""

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
    python: str
    python_mip: str

    def __str__(self) -> str:
        return (
            f"{self.date}: {self.cores} cores, {self.processor}, load {self.load:.1f}, "
            f"Python {self.python}, python-mip {self.python_mip}"
        )


def this_machine() -> Machine:
    """Look at it."""
    return Machine(
        date=date.today().isoformat(),
        cores=os.cpu_count() or 1,
        processor=_processor(),
        load=os.getloadavg()[0],
        python=platform.python_version(),
        python_mip=version("mip"),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
