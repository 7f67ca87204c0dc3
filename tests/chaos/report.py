"""The result of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from scripts.benchkit.text import table
from tests.chaos.run import Outcome


def rendered(result: Mapping[str, Any]) -> str:
    """Return a row for each kind of fault, what was counted, and every violation."""
    outcomes: Sequence[Outcome] = result["outcomes"]
    counted = {name: value for name, value in result.items() if name != "outcomes"}
    lines = [f"{name:<18}{_plain(value)}" for name, value in counted.items()]
    wrong = [
        f"VIOLATION {one.fault} ({one.detail}): {words}"
        for one in outcomes
        for words in one.violations
    ]
    return "\n".join([table(_rows(outcomes, list(result["steps"]))), "", *lines, *wrong])


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name} {_plain(one)}" for name, one in value.items()]
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _rows(outcomes: Sequence[Outcome], trainers: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the heads, and a row for each kind of fault."""
    lost = [f"lost: {name}" for name in trainers]
    yield "fault", "times", "well again after, s", *lost, "violations"
    for fault in sorted({one.fault for one in outcomes}):
        those = [one for one in outcomes if one.fault == fault]
        times = len(those) + sum(one.second == fault for one in outcomes)
        times_s = [one.settled_s for one in those if one.settled_s is not None]
        yield (
            fault,
            str(times),
            f"{median(times_s):.0f} (at most {max(times_s):.0f})" if times_s else "never",
            *(f"{sum(one.lost.get(name, 0.0) for one in those):.0f}" for name in trainers),
            str(sum(len(one.violations) for one in those)),
        )
