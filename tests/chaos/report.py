"""The result, as a table and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from scripts.benchkit import text
from tests.chaos.run import Result


def document(result: Result) -> dict[str, Any]:
    """Return the result with every single fault."""
    counted = ("faults", "violations", "steps_lost", "good")
    return asdict(result) | {name: getattr(result, name) for name in counted}


def table(result: Result) -> str:
    """Return the table for a terminal."""
    facts = {
        "faults injected": f"{result.faults}",
        "trainers lost": f"{result.trainers_lost}",
        "invariant violations": f"{result.violations}",
        "ordinary jobs": f"{result.ordinary_submitted}, failed {result.ordinary_failed}",
        "on nodes with elements": f"{result.ordinary_beside} of them",
    }
    for name, steps in result.steps.items():
        facts[f"trained: {name}"] = f"{steps:,.0f} steps, lost {result.steps_lost[name]:g}"
    if result.ordinary_waits_s:
        waits_s = result.ordinary_waits_s
        facts["they waited"] = f"{median(waits_s):.1f} s in the median, {max(waits_s):.0f} at most"
    if result.resubmitted:
        facts["submitted again"] = f"{result.resubmitted}, as Slurm had lost their jobs, or some"
    if result.drained_by_slurm:
        facts["drained by Slurm"] = f"{result.drained_by_slurm}, for no fault of ours"
    if result.skipped:
        facts["skipped"] = ", ".join(result.skipped)
    lines = [text.table(_rows(result)), ""]
    lines.append(f"seed {result.seed}, {result.seconds / 60:.1f} minutes")
    lines += [f"{name:<22} {fact}" for name, fact in facts.items()]
    for one in result.outcomes:
        lines += _violations(f"{one.fault} ({one.detail})", one.violations)
        if one.evidence:
            lines.append(f"  kept in {one.evidence}")
    lines += _violations("the end, with all trainers cancelled", result.left_behind)
    return "\n".join(lines)


def _rows(result: Result) -> Iterator[Sequence[str]]:
    """Yield the heads, and a row for each kind of fault."""
    lost = [f"lost: {name}" for name in result.steps]
    yield "fault", "times", "well again after, s", *lost, "violations"
    for fault in sorted({one.fault for one in result.outcomes}):
        those = [one for one in result.outcomes if one.fault == fault]
        on_top = [one for one in result.outcomes if one.second == fault]
        times_s = [one.settled_s for one in those if one.settled_s is not None]
        yield (
            fault,
            str(len(those) + len(on_top)),
            f"{median(times_s):.0f} (at most {max(times_s):.0f})" if times_s else "never",
            *(f"{sum(one.lost.get(name, 0.0) for one in those):.0f}" for name in result.steps),
            str(sum(len(one.violations) for one in those)),
        )


def _violations(where: str, found: Sequence[str]) -> list[str]:
    return [f"VIOLATION {where}: {words}" for words in found]
