"""What our line in plugstack.conf costs ordinary commands: run in turns without it and with it.

sbatch loads the plugin, srun too, and so does the slurmstepd of each step on its node.
"""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.labcluster.lab import Lab
from scripts.labcluster.site import prepared_site

_COMMANDS = {
    "sbatch": ("sbatch", "--hold", "--wrap=true", "--output=/dev/null"),
    "srun true": ("srun", "--ntasks=1", "true"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What one command took."""

    wall_ms: float
    processor_ms: float  # the command's own, not that of the daemons


@dataclass(frozen=True, slots=True)
class Cost:
    """All runs of a command; the two of a round have the same place."""

    without: tuple[Run, ...]
    with_plugin: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Medians in milliseconds; 95 % certain is that the difference lies in ``low`` to ``high``."""

    without: float
    with_plugin: float
    difference: float
    low: float
    high: float


def measure(rounds: int) -> dict[str, Cost]:
    """Run each command so often on each side, on a cluster of one node.

    Raises:
        cluster.LabError: the cluster does not start, or a command fails in it.
    """
    with prepared_site(1, kill_wait=30) as site:
        plugstack = site.lab.dir / "plugstack.conf"
        line = plugstack.read_text()
        return {
            name: _compare(site.lab, command, plugstack, line, rounds)
            for name, command in _COMMANDS.items()
        }


def compare(cost: Cost, of: Callable[[Run], float]) -> Difference:
    """Compare one figure of the runs, round by round."""
    without, with_plugin = ([of(run) for run in runs] for runs in (cost.without, cost.with_plugin))
    differences = sorted(b - a for a, b in zip(without, with_plugin, strict=True))
    low, high = _interval(differences)
    middle = statistics.median(differences)
    return Difference(statistics.median(without), statistics.median(with_plugin), middle, low, high)


def table(costs: dict[str, Cost]) -> str:
    """Return the figures of all commands."""
    lines = [f"{'ms, medians':<26}{'without':>9}{'with':>9}{'difference':>12}   95 % certain"]
    for name, one in _rows(costs):
        interval = f"{one.low:+.2f} to {one.high:+.2f}"
        figures = f"{one.without:>9.2f}{one.with_plugin:>9.2f}{one.difference:>+12.2f}"
        lines.append(f"{name:<26}{figures}   {interval}")
    return "\n".join(lines)


def document(costs: dict[str, Cost]) -> dict[str, dict[str, float]]:
    """Return the same for --json."""
    return {name: asdict(one) for name, one in _rows(costs)}


def _rows(costs: dict[str, Cost]) -> list[tuple[str, Difference]]:
    rows = []
    for name, cost in costs.items():
        rows.append((name, compare(cost, lambda run: run.wall_ms)))
        rows.append((f"{name}, processor", compare(cost, lambda run: run.processor_ms)))
    return rows


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the ordered values between which their median lies, with a probability of 95 %.

    How many values lie below it is binomially distributed; near enough, normally.
    """
    beyond = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[beyond], ordered[-1 - beyond]


def _compare(lab: Lab, command: Sequence[str], plugstack: Path, line: str, rounds: int) -> Cost:
    runs: dict[str, list[Run]] = {"": [], line: []}
    for number in range(rounds):
        for text in ("", line) if number % 2 else (line, ""):
            plugstack.write_text(text)
            runs[text].append(_timed(lambda: lab.run(*command)))
    return Cost(tuple(runs[""]), tuple(runs[line]))


def _timed(call: Callable[[], Any]) -> Run:
    before_s, begin_s = _processor_s(), time.monotonic()
    call()
    wall_s = time.monotonic() - begin_s
    return Run(1e3 * wall_s, 1e3 * (_processor_s() - before_s))


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
