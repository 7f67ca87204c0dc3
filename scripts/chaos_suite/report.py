"""The result as a table, and as a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from scripts.benchkit.text import columns
from scripts.chaos_suite.fleet import FleetResult
from scripts.chaos_suite.run import Outcome, Result

_FLEET: Sequence[tuple[str, Callable[[FleetResult], str]]] = (
    ("", lambda one: one.setup.title),
    ("KILLS", lambda one: str(one.events["kill"])),
    ("JOINS", lambda one: str(one.events["join"])),
    ("LEAVES", lambda one: str(one.events["leave"])),
    ("TIME", lambda one: f"{one.seconds:.0f} s"),
    ("TRAINS ON", lambda one: "yes" if one.trains_on else "NO"),
    ("STEPS", lambda one: str(one.account.steps)),
    ("DONE TWICE", lambda one: str(one.account.repeated)),
    ("MISSING", lambda one: str(one.account.missing)),
    ("DIFFERENT WEIGHTS", lambda one: f"{one.account.differing} of {one.account.compared} steps"),
)


def document(result: Result) -> dict[str, Any]:
    """Return the result with every single fault."""
    counted = ("faults", "violations", "steps_lost", "good")
    return asdict(result) | {name: getattr(result, name) for name in counted}


def table(result: Result) -> str:
    """Return the table for a terminal."""
    of: dict[str, list[Outcome]] = defaultdict(list)
    for one in result.outcomes:
        of[one.fault].append(one)
    on_top = [one.second for one in result.outcomes]
    cells: list[tuple[str, Callable[[str], str]]] = [
        ("fault", str),
        ("times", lambda fault: str(len(of[fault]) + on_top.count(fault))),
        ("well again after, s", lambda fault: _settled(of[fault])),
        *((f"lost: {name}", _lost(of, name)) for name in result.steps),
        ("violations", lambda fault: str(sum(len(one.violations) for one in of[fault]))),
    ]
    survivors = sum(one.lost_by_survivors for one in result.outcomes)
    facts = {
        "faults injected": f"{result.faults}",
        "trainers lost": f"{result.trainers_lost}",
        "invariant violations": f"{result.violations}",
        "ordinary jobs": f"{result.ordinary_submitted}, failed {result.ordinary_failed}",
        "lost by survivors": f"{survivors:g}, though a process that had made them trains on",
    }
    for name, steps in result.steps.items():
        facts[f"trained: {name}"] = f"{steps:,.0f} steps, lost {result.steps_lost[name]:g}"
    if result.resubmitted:
        facts["submitted again"] = f"{result.resubmitted}, as Slurm had lost their jobs, or some"
    if result.drained_by_slurm:
        facts["drained by Slurm"] = f"{result.drained_by_slurm}, for no fault of ours"
    if result.skipped:
        facts["skipped"] = ", ".join(result.skipped)
    told = [f"{name:<22} {fact}" for name, fact in facts.items()]
    head = f"seed {result.seed}, {result.seconds / 60:.1f} minutes"
    lines = [columns(sorted(of), cells), "", head, *told]
    for one in result.outcomes:
        lines += _violations(f"{one.fault} ({one.detail})", one.violations)
        if one.evidence:
            lines.append(f"  kept in {one.evidence}")
    return "\n".join(lines)


def fleet_table(results: Sequence[FleetResult]) -> str:
    """Return the table of the random events without Slurm."""
    lines = ["random kills, joins and leaves in a row, not waiting for the trainer"]
    lines.append(columns(results, _FLEET))
    for one in results:
        lines += _violations(one.setup.title, one.violations)
    return "\n".join(lines)


def _violations(where: str, found: Sequence[str]) -> list[str]:
    return [f"VIOLATION {where}: {words}" for words in found]


def _lost(of: dict[str, list[Outcome]], name: str) -> Callable[[str], str]:
    return lambda fault: f"{sum(one.lost.get(name, 0.0) for one in of[fault]):.0f}"


def _settled(outcomes: Sequence[Outcome]) -> str:
    times_s = [one.settled_s for one in outcomes if one.settled_s is not None]
    return f"{median(times_s):.0f} (at most {max(times_s):.0f})" if times_s else "never"
