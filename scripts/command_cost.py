"""``make bench-commands``: what our line in plugstack.conf costs commands.

Ordinary commands run in turns without it and with it: sbatch and srun load the plugin, and so does
the slurmstepd of each step on its node. A tagged sbatch is compared with an ordinary one.
"""

from __future__ import annotations

import math
import resource
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from scripts.benchkit.command import Findings, bench_command, number
from scripts.benchkit.text import columns
from scripts.labcluster.cluster import LabError
from scripts.labcluster.lab import Lab
from scripts.labcluster.site import prepared_site

_COMMANDS = {
    "sbatch": ("sbatch", "--hold", "--wrap=true", "--output=/dev/null"),
    "srun true": ("srun", "--ntasks=1", "true"),
}
_TAGGED = ("sbatch", "--bftrainer", "-N1-2", "--wrap=true", "--output=/dev/null")
# Milliseconds that the command takes without the plugin, and with it, one just after the other.
Round: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Medians in milliseconds; ``low`` to ``high`` is the 95 % interval of the difference."""

    without: float
    with_plugin: float
    difference: float
    low: float
    high: float


@bench_command(LabError, TimeoutError)
@number("--rounds", 300, 10, 10_000, "How often each command runs without the plugin, and with it.")
def main(rounds: int) -> Findings:
    """Measure what the plugin costs commands, on a private cluster of one node.

    \b
    Example:
      scripts/run bench-commands --rounds 100
    """
    measured = defaultdict(list)
    with prepared_site(1, kill_wait=30) as site:
        plugstack = site.lab.dir / "plugstack.conf"
        line = plugstack.read_text()
        for name, command in _COMMANDS.items():
            for turn in range(rounds):
                took = {}
                for text in ("", line) if turn % 2 else (line, ""):
                    plugstack.write_text(text)
                    took[text] = _timed(site.lab, command)
                measured[name].append((took[""][0], took[line][0]))
                measured[f"{name}, processor"].append((took[""][1], took[line][1]))
        for turn in range(rounds):
            order = (_COMMANDS["sbatch"], _TAGGED)
            wall = {words: _timed(site.lab, words)[0] for words in order[:: 1 if turn % 2 else -1]}
            measured["sbatch --bftrainer"].append((wall[order[0]], wall[order[1]]))
    found = {name: compare(all_rounds) for name, all_rounds in measured.items()}
    return Findings(rendered(found), found)


def compare(rounds: Sequence[Round]) -> Difference:
    """Compare both sides, round by round."""
    without, with_plugin = zip(*rounds, strict=True)
    differences = sorted(late - early for early, late in rounds)
    low, high = _interval(differences)
    return Difference(median(without), median(with_plugin), median(differences), low, high)


def rendered(found: Mapping[str, Difference]) -> str:
    """Return the figures as a table."""
    return columns(
        found.items(),
        [
            ("ms, medians", lambda row: row[0]),
            ("without", lambda row: f"{row[1].without:.2f}"),
            ("with", lambda row: f"{row[1].with_plugin:.2f}"),
            ("difference", lambda row: f"{row[1].difference:+.2f}"),
            ("95 % certain", lambda row: f"{row[1].low:+.2f} to {row[1].high:+.2f}"),
        ],
    )


def _interval(ordered: Sequence[float]) -> Round:
    """Return the ordered values between which their median lies, with a probability of 95 %.

    The number of values below it has a binomial distribution, which is almost a normal one.
    """
    beyond = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[beyond], ordered[-1 - beyond]


def _timed(lab: Lab, command: Sequence[str]) -> tuple[float, float]:
    """Return a command's time and its processor time, in ms, without the daemons."""
    before_s, begin_s = _processor_s(), time.monotonic()
    lab.run(*command)
    wall_s = time.monotonic() - begin_s
    return 1e3 * wall_s, 1e3 * (_processor_s() - before_s)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
