"""``make bench-commands``: what our line in plugstack.conf costs ordinary commands.

They run in turns without it and with it: sbatch loads the plugin, srun too, and so does the
slurmstepd of each step on its node.
"""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from scripts.benchkit.command import Findings, bench_command
from scripts.benchkit.text import table
from scripts.labcluster.cluster import LabError
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


@bench_command(LabError, TimeoutError)
@click.option(
    "--rounds",
    type=click.IntRange(10, 10_000),
    default=300,
    help="How often each command runs without the plugin, and with it.",
)
def main(rounds: int) -> Findings:
    """Measure what the plugin costs ordinary commands, on a private cluster of one node.

    \b
    Example:
      scripts/run bench-commands --rounds 100
    """
    found = differences(measure(rounds))
    return Findings(rendered(found), found)


def measure(rounds: int) -> dict[str, Cost]:
    """Run each command so often on each side, on a cluster of one node.

    Raises:
        LabError: the cluster does not start, or a command fails in it.
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


def differences(costs: dict[str, Cost]) -> dict[str, Difference]:
    """Return the figures of all commands, by what was timed."""
    found = {}
    for name, cost in costs.items():
        found[name] = compare(cost, lambda run: run.wall_ms)
        found[f"{name}, processor"] = compare(cost, lambda run: run.processor_ms)
    return found


def rendered(found: dict[str, Difference]) -> str:
    """Return the figures as a table."""
    rows = [("ms, medians", "without", "with", "difference", "95 % certain")]
    for name, one in found.items():
        middle, low, high = (f"{ms:+.2f}" for ms in (one.difference, one.low, one.high))
        sides = (f"{one.without:.2f}", f"{one.with_plugin:.2f}")
        rows.append((name, *sides, middle, f"{low} to {high}"))
    return table(rows)


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
