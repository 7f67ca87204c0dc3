"""Processor time and memory of this process, of its threads and its children, as Linux tells."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Processor:
    """Seconds of processor time so far."""

    daemon_s: float
    children_s: float


def thread_cpu_s(threads: Iterable[int]) -> float:
    """Return what these threads (by their ``ident``) have taken."""
    return sum(time.clock_gettime(time.pthread_getcpuclockid(one)) for one in threads)


def children_cpu_s() -> float:
    """Return what the processes below this one have taken that are there now."""
    parents: dict[int, int] = {}
    took_s: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[1])
        took_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    return sum(took_s[one] for one in took_s if _is_below(one, os.getpid(), parents))


def rss_mb() -> float:
    """Return the memory of this process, in megabytes (10^6 bytes)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _is_below(process: int, above: int, parents: dict[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == above:
            return True
    return False
