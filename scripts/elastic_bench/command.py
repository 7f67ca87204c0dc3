"""The command line of ``scripts/run bench-elastic``: what is measured, how often, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from scripts.benchkit.command import Findings, bench_command, findings, number, progress, several
from scripts.benchkit.figures import Target, at_most, summarise
from scripts.benchkit.machine import this_machine
from scripts.benchkit.text import table
from scripts.elastic_bench.measure import SETUPS, Measured, measure

_CHANGES = {
    "join_s": "node joins",
    "kill_s": "node killed",
    "leave_s": "planned leave",
    "reclaim_s": "SIGTERM",
}
_PAUSES = {key: f"{change}: pause of the others" for key, change in _CHANGES.items()}
_ROWS = _PAUSES | {
    "start_s": "joining agent started until its first step",
    "step_s": "a step with all nodes there",
}
_TARGETS_S = {"join_s": 0.25, "kill_s": 0.30, "leave_s": 0.25}  # of the set-up "handler"


@bench_command(TimeoutError)
@several("--setup", "names", SETUPS, "Measure only this one.")
@number(
    "--repeat",
    *(10, 1, 1000),
    "How often a node is killed, leaves and is reclaimed; one joins each time.",
)
def main(names: Sequence[str], repeat: int) -> Findings:
    """Measure how long trainers stand still as nodes come and go, on this machine.

    Four nodes, each a torchrun agent with one training process, on gloo. Stock c10d, tuned, and
    our rendezvous handler with the same script.

    \b
    Example:
      scripts/run bench-elastic --repeat 3 --setup handler
    """
    machine = this_machine("mip", "torch")
    measured = [measure(SETUPS[name], repeat, progress(f"{name}: ")) for name in names]
    document = [
        {"setup": one.setup, "failures": one.failures, "again": one.again, **one.times_s}
        for one in measured
    ]
    return findings(machine, pauses(measured), targets=targets(measured), pauses=document)


def targets(all_measured: Sequence[Measured]) -> list[Target]:
    """Return the targets for the medians of the unchanged script."""
    return [
        at_most(f"handler: {_PAUSES[key]}", median(one.times_s[key]), most_s)
        for one in all_measured
        for key, most_s in _TARGETS_S.items()
        if one.setup.name == "handler" and one.times_s[key]
    ]


def pauses(all_measured: Sequence[Measured]) -> str:
    """Return the table of the single changes."""
    heads = ["", *(one.setup.title for one in all_measured)]
    cells = [[text, *(_times(one, key) for one in all_measured)] for key, text in _ROWS.items()]
    cells += [
        [f"{change}: steps made again", *(_again(one.again[key]) for one in all_measured)]
        for key, change in _CHANGES.items()
    ]
    lines = ["seconds: median (least to most), of how many", table([heads, *cells])]
    if any(one.setup.c10d for one in all_measured):
        lines.append("* stock c10d knows no planned leave: SIGTERM, as Slurm sends it")
    failed = ((one.setup.title, words) for one in all_measured for words in one.failures)
    return "\n".join([*lines, *(f"{title} FAILED: {words}" for title, words in failed)])


def _again(steps: Sequence[int]) -> str:
    return f"{median(steps):g} ({min(steps)} to {max(steps)})" if steps else "-"


def _times(one: Measured, key: str) -> str:
    star = "*" if key == "leave_s" and one.setup.c10d else ""
    times_s = one.times_s["reclaim_s" if star else key]
    if not times_s:
        return "-"
    found = summarise(times_s)
    least, most = (f"{time_s:.3f}" for time_s in (found.least, found.most))
    return f"{star}{found.median:.3f} ({least} to {most}) {found.count:>3}"
