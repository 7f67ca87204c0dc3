"""A log is trusted where nearly all jobs of the time are in it."""

from __future__ import annotations

import math

import pytest

from bftrainer_slurm.replay.logs import edges as module
from bftrainer_slurm.replay.logs.edges import Edges


def edges(start_s: list[float], end_s: list[float]) -> Edges:
    found = Edges()
    for start, end in zip(start_s, end_s, strict=True):
        found.add(start, end, 1.0)
    return found


def stream(jobs: int = 1000, run_s: float = 100.0) -> tuple[list[float], list[float]]:
    start_s = [10.0 * k for k in range(jobs)]
    return start_s, [start + run_s for start in start_s]


def test_the_first_jobs_must_have_gone_before_a_log_is_trusted() -> None:
    from_s, _ = edges(*stream()).trusted(math.nan)
    # All run 100 s: 99 % of what ran when the first one ended has gone 90 s later.
    assert 180 <= from_s <= 200


def test_a_log_ends_with_its_last_submission() -> None:
    _, to_s = edges(*stream()).trusted(9000.0)
    assert to_s == 9000.0


def test_without_submissions_it_ends_with_the_last_start() -> None:
    _, to_s = edges(*stream()).trusted(-math.inf)
    assert to_s == 9990.0


def test_a_log_of_ended_jobs_is_cut_at_its_end_too() -> None:
    start_s, end_s = stream()
    done = [(s, e) for s, e in zip(start_s, end_s, strict=True) if e <= 9000.0]
    _, to_s = edges([s for s, _ in done], [e for _, e in done]).trusted(9005.0)
    assert 8900 <= to_s <= 8920


def test_taking_jobs_in_by_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = edges(*stream()).trusted(9000.0)
    monkeypatch.setattr(module, "_BUFFERED", 7)
    assert edges(*stream()).trusted(9000.0) == whole


def test_at_most_a_quarter_is_cut_off() -> None:
    from_s, _ = edges([0.0, 0.0, 50.0], [10.0, 1e6, 60.0]).trusted(110.0)
    assert from_s == 10.0 + 25.0


def test_jobs_that_never_overlap_leave_nothing() -> None:
    with pytest.raises(ValueError, match="do not overlap"):
        edges([0.0], [10.0]).trusted(-math.inf)
