"""The results as text for a terminal and as JSON, and which of the targets are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from scripts.benchkit.figures import Target, at_most, summarise
from scripts.benchkit.machine import Machine
from scripts.benchkit.text import table
from scripts.elastic_bench.endtoend import EndToEnd
from scripts.elastic_bench.measure import Measured

ROWS = {
    "join_s": "node joins: pause of the others",
    "copy_s": "of that, copying the state",
    "kill_s": "node killed: pause of the others",
    "leave_s": "planned leave: pause of the others",
    "reclaim_s": "SIGTERM: pause of the others",
    "start_s": "joining agent started until its first step",
    "step_s": "a step with all nodes there",
}
CLUSTER_ROWS = {
    "taken_s": "ordinary job submitted until the others train on",
    "pause_s": "of that, the others' pause",
    "back_s": "node idle until training there",
    "warm_s": "of that, from the element's start",
}
_TARGETS = {
    ("handler", "join_s"): 0.25,
    ("handler", "kill_s"): 0.30,
    ("handler", "leave_s"): 0.25,
    ("inprocess", "join_s"): 0.15,  # and the copying of the state
    ("inprocess", "kill_s"): 0.20,
    ("inprocess", "leave_s"): 0.10,
}


def document(
    machine: Machine,
    measured: Mapping[str, Sequence[Measured]],
    cluster: Sequence[EndToEnd],
) -> dict[str, Any]:
    """Return all of it for JSON; times are seconds, ``pauses`` and ``targets`` are by model."""
    return {
        "machine": machine,
        "pauses": measured,
        "targets": {model: targets(model, found) for model, found in measured.items()},
        "cluster": cluster,
    }


def targets(model: str, all_measured: Sequence[Measured]) -> list[Target]:
    """Return the targets of the medians of all that was measured.

    With the large model those of the processes that go on: an unchanged script's own reading of
    its checkpoint is none of ours.
    """
    held = []
    for measured in all_measured:
        name = measured.setup.name
        if model != "tiny" and name != "inprocess":
            continue
        for row, text in ROWS.items():
            times_s, most_s = getattr(measured, row), _TARGETS.get((name, row))
            if most_s is None or not times_s:
                continue
            if row == "join_s" and measured.copy_s:
                copy_s = median(measured.copy_s)
                text += f" ({most_s:.2f} s, and {copy_s:.3f} s for the copy)"
                most_s = round(most_s + copy_s, 3)
            held.append(at_most(f"{name}: {text}", median(times_s), most_s))
    return held


def pauses(model: str, all_measured: Sequence[Measured]) -> str:
    """Return the table of the single events."""
    lines = [
        f"{model} model; seconds: median (least to most), of how many",
        _side_by_side(all_measured, ROWS, digits=3),
    ]
    if any(not measured.setup.parts for measured in all_measured):
        lines.append("* stock c10d knows no planned leave: SIGTERM, as Slurm sends it")
    return "\n".join([*lines, *_failures(all_measured), *map(str, targets(model, all_measured))])


def cluster(found: Sequence[EndToEnd]) -> str:
    """Return the table of what was measured end to end."""
    lines = [
        "one node of four taken and given back by Slurm, tiny model; "
        "seconds: median (least to most), of how many",
        _side_by_side(found, CLUSTER_ROWS, digits=2),
    ]
    return "\n".join([*lines, *_failures(found)])


def _side_by_side(
    found: Sequence[Measured] | Sequence[EndToEnd], rows: Mapping[str, str], digits: int
) -> str:
    heads = ["", *(one.setup.title for one in found)]
    cells = [[text, *(_cell(one, row, digits) for one in found)] for row, text in rows.items()]
    return table([heads, *cells])


def _cell(one: Measured | EndToEnd, row: str, digits: int) -> str:
    times_s: list[float] = getattr(one, row)
    if not times_s:
        return "-"
    star = "*" if row == "leave_s" and not one.setup.parts else ""
    found = summarise(times_s)
    least, most = (f"{time_s:.{digits}f}" for time_s in (found.least, found.most))
    return f"{star}{found.median:.{digits}f} ({least} to {most}) {found.count:>3}"


def _failures(found: Sequence[Measured] | Sequence[EndToEnd]) -> list[str]:
    return [f"{one.setup.title} FAILED: {words}" for one in found for words in one.failures]
