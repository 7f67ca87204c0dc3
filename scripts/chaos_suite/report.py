"""The result as a table, and as a document."""

from __future__ import annotations

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
    return asdict(result) | {
        "faults": len(result.outcomes) + _doubles(result),
        "violations": result.violations,
        "steps_lost": steps_lost(result),
        "good": result.good,
    }


def steps_lost(result: Result) -> dict[str, float]:
    """Return what was trained in vain, by trainer."""
    return {
        name: round(sum(one.lost.get(name, 0.0) for one in result.outcomes), 2)
        for name in result.steps
    }


def table(result: Result) -> str:
    """Return the table for a terminal."""
    names = list(result.steps)
    heads = "".join(f"{'lost: ' + name:>18}" for name in names)
    lines = [f"{'fault':<22}{'times':>6}{'well again after, s':>24}{heads}{'violations':>12}"]
    for fault in sorted({one.fault for one in result.outcomes}):
        found = [one for one in result.outcomes if one.fault == fault]
        cells = "".join(f"{sum(one.lost.get(n, 0.0) for one in found):>18.0f}" for n in names)
        violations = sum(len(one.violations) for one in found)
        times = len(found) + sum(one.second == fault for one in result.outcomes)
        lines.append(f"{fault:<22}{times:>6}{_settled(found):>24}{cells}{violations:>12}")
    lost = steps_lost(result)
    lines += [
        "",
        f"seed {result.seed}, {result.seconds / 60:.1f} minutes",
        f"faults injected        {len(result.outcomes) + _doubles(result)}",
        f"trainers lost          {result.trainers_lost}",
        f"invariant violations   {result.violations}",
        *(
            f"{name}: trained {result.steps[name]:,.0f} steps, lost {lost[name]:g}"
            for name in names
        ),
        f"  of these, though a process that had made them trains on: {_by_survivors(result):g}",
        f"ordinary jobs          {result.ordinary_submitted}, failed {result.ordinary_failed}",
    ]
    if result.resubmitted:
        lines.append(
            f"submitted again        {result.resubmitted}, as Slurm had lost their jobs, or some"
        )
    if result.drained_by_slurm:
        words = "as slurmctld, killed, had not saved what it had started"
        lines.append(f"drained by Slurm       {result.drained_by_slurm}, {words}")
    if result.skipped:
        lines.append(f"skipped                {', '.join(result.skipped)}")
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


def _doubles(result: Result) -> int:
    return sum(one.second is not None for one in result.outcomes)


def _by_survivors(result: Result) -> float:
    return sum(one.lost_by_survivors for one in result.outcomes)


def _settled(outcomes: Sequence[Outcome]) -> str:
    times_s = [one.settled_s for one in outcomes if one.settled_s is not None]
    if not times_s:
        return "never"
    return f"{median(times_s):.0f} (at most {max(times_s):.0f})"
