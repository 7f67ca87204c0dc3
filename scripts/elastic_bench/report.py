"""The results as text for a terminal, and which targets are met."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from scripts.benchkit.figures import Target, at_most, summarise
from scripts.benchkit.text import table
from scripts.elastic_bench.measure import Measured

ROWS = {
    "join_s": "node joins: pause of the others",
    "kill_s": "node killed: pause of the others",
    "leave_s": "planned leave: pause of the others",
    "reclaim_s": "SIGTERM: pause of the others",
    "start_s": "joining agent started until its first step",
    "step_s": "a step with all nodes there",
}
_AGAIN = {
    "join_s": "node joins: steps made again",
    "kill_s": "node killed: steps made again",
    "leave_s": "planned leave: steps made again",
    "reclaim_s": "SIGTERM: steps made again",
}
_TARGETS = {
    ("handler", "join_s"): 0.25,
    ("handler", "kill_s"): 0.30,
    ("handler", "leave_s"): 0.25,
}


def targets(all_measured: Sequence[Measured]) -> list[Target]:
    """Return the targets for the medians of all measurements."""
    held = []
    for measured in all_measured:
        name = measured.setup.name
        for row, text in ROWS.items():
            times_s, most_s = getattr(measured, row), _TARGETS.get((name, row))
            if most_s is not None and times_s:
                held.append(at_most(f"{name}: {text}", median(times_s), most_s))
    return held


def pauses(all_measured: Sequence[Measured]) -> str:
    """Return the table of the single events."""
    heads = ["", *(one.setup.title for one in all_measured)]
    cells = [[text, *(_cell(one, row) for one in all_measured)] for row, text in ROWS.items()]
    cells += [[text, *(_again(one, row) for one in all_measured)] for row, text in _AGAIN.items()]
    lines = [
        "seconds: median (least to most), of how many",
        table([heads, *cells]),
    ]
    if any(not measured.setup.parts for measured in all_measured):
        lines.append("* stock c10d knows no planned leave: SIGTERM, as Slurm sends it")
    failed = ((one.setup.title, words) for one in all_measured for words in one.failures)
    return "\n".join([*lines, *(f"{title} FAILED: {words}" for title, words in failed)])


def _again(one: Measured, row: str) -> str:
    steps = one.again[row]
    return f"{median(steps):g} ({min(steps)} to {max(steps)})" if steps else "-"


def _cell(one: Measured, row: str) -> str:
    times_s: list[float] = getattr(one, row)
    if not times_s:
        return "-"
    star = "*" if row == "leave_s" and not one.setup.parts else ""
    found = summarise(times_s)
    least, most = (f"{time_s:.3f}" for time_s in (found.least, found.most))
    return f"{star}{found.median:.3f} ({least} to {most}) {found.count:>3}"
