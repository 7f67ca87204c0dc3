"""An objective from outside that returns nonsense: throughput instead, and a logged reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives import Facts, curves_of, find
from tests.planner.objectives.made import STEEP

ONE = Facts(STEEP, 1, 8, weight=2.0)


def raising(trainers: Sequence[Facts]) -> list[ThroughputCurve]:
    return [1 / 0 for _ in trainers]


NONSENSE: dict[str, tuple[Callable[[Sequence[Facts]], Any], str]] = {
    "raises": (raising, "ZeroDivisionError"),
    "nothing": (lambda _: None, "no list of 1 curves"),
    "too few": (lambda _: [], "no list of 1 curves"),
    "too many": (lambda _: [STEEP, STEEP], "no list of 1 curves"),
    "no curve": (lambda _: [3.0], "is a float"),
    "NaN": (lambda _: [ThroughputCurve((0, 1), (0.0, float("nan")))], "not between"),
    "infinite": (lambda _: [ThroughputCurve((0, 1), (0.0, float("inf")))], "not between"),
    "negative": (lambda _: [ThroughputCurve((0, 1), (0.0, -1.0))], "ValueError"),
    "beyond all bounds": (lambda _: [ThroughputCurve((0, 1), (0.0, 1e300))], "not between"),
    "fractions of nodes": (lambda _: [ThroughputCurve((0, 0.5), (0.0, 1.0))], "no integer"),  # type: ignore[arg-type]
    "huge": (
        lambda _: [ThroughputCurve(tuple(range(5000)), tuple(map(float, range(5000))))],
        "more than 1000 points",
    ),
}


@pytest.mark.parametrize(("objective", "reason"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_planned_by_throughput(
    objective: Callable[[Sequence[Facts]], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert curves_of(objective, [ONE]) == find("throughput")([ONE])
    assert reason in caplog.text


def test_sense_is_taken_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    assert curves_of(find("speedup"), [ONE]) == find("speedup")([ONE])
    assert not caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_nodes": 0}, "min_nodes"),
        ({"weight": 0.0}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"waited_s": -1.0}, "waited_s"),
        ({"waited_s": float("nan")}, "waited_s"),
        ({"done": 1.1}, "share that is done"),
        ({"curve": ThroughputCurve((0, 1), (0.0, float("inf")))}, "finite"),
    ],
)
def test_facts_are_held_to_what_they_mean(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Facts(**{"curve": STEEP, "min_nodes": 1, "max_nodes": 8} | changes)
