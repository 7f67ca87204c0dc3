"""How much memory a process of a job may still take. Standard library only."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path

# Of a cgroup: what it may take and what it takes, in versions 2 and 1.
_LIMITS = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def memory_left(root: Path = Path("/")) -> int:
    """Return how much memory is left (bytes), on the host and in this process's cgroups."""
    left = [1024 * int((root / "proc/meminfo").read_text().split("MemAvailable:")[1].split()[0])]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        top = root / "sys/fs/cgroup" / ("memory" if "memory" in kinds.split(",") else "")
        own = top / path.lstrip("/")
        groups = [one for one in (own, *own.parents) if one.is_relative_to(top)]
        for group, names in product(groups, _LIMITS):
            with suppress(OSError, ValueError):  # there is none
                most, now = (int((group / name).read_text()) for name in names)
                cache = (group / "memory.stat").read_text().split("inactive_file ")[1].split()[0]
                left.append(most - now + int(cache))
    return min(left)
