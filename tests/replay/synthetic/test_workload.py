"""Made workloads: what their text form says, and that they are what they claim."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer_slurm.replay.synthetic.workload import (
    DAY_S,
    LONGEST_RUN_S,
    Workload,
    WorkloadError,
    draw,
    parse_synthetic,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", Workload(1000)),
        ("1000:0.9", Workload(1000, 0.9)),
        ("64:1.1:42", Workload(64, 1.1, 42)),
    ],
)
def test_the_text_form(text: str, expected: Workload) -> None:
    assert parse_synthetic(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "10:", "10:1:2:3", "0", "10:0", "10:9", "10:nan", "10:1:-1", "1e3", "10:inf"]
)
def test_what_is_no_cluster_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError):
        parse_synthetic(text)


@pytest.mark.parametrize("days", [0.0, float("nan"), float("inf"), 1e9])
def test_days_are_bounded(days: float) -> None:
    with pytest.raises(WorkloadError):
        parse_synthetic("10", days)


def test_the_same_seed_gives_the_same_jobs() -> None:
    first, same, other = (draw(Workload(100, seed=seed)) for seed in (7, 7, 8))
    assert (first.submit_s == same.submit_s).all()
    assert len(first.submit_s) != len(other.submit_s) or (first.run_s != other.run_s).any()


def test_the_jobs_ask_for_the_load() -> None:
    workload = Workload(2000, load=0.8, days=60)
    jobs = draw(workload)
    assert (jobs.nodes * jobs.run_s).sum() / (2000 * workload.span_s) == pytest.approx(0.8, rel=0.1)


def test_every_job_fits_and_asks_for_enough_time() -> None:
    jobs = draw(Workload(200))
    assert (jobs.nodes >= 1).all()
    assert jobs.nodes.max() == 50
    assert (jobs.limit_s >= jobs.run_s).all()
    assert jobs.limit_s.max() <= LONGEST_RUN_S


def test_days_are_busier_than_nights_and_weekends() -> None:
    jobs = draw(Workload(5000, days=26))
    hour = jobs.submit_s // 3600 % 24
    weekend = jobs.submit_s // DAY_S % 7 >= 5
    by_day = np.count_nonzero((hour >= 11) & (hour < 17))
    by_night = np.count_nonzero((hour >= 23) | (hour < 5))
    assert by_day > 2 * by_night
    assert np.count_nonzero(weekend) / len(weekend) < 2 / 7 * 0.8
