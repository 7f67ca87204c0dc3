"""Who missed a pass, what was idle after one, and how alike both sides were, is counted right."""

from __future__ import annotations

import math

import pytest

from scripts.impact_bench.passes import (
    elements_s,
    idle_after_pass_s,
    out_of_phase_s,
    passes_waited,
    preempting,
)
from tests.impact_bench.starts import start


def test_a_job_waits_for_the_passes_between_its_submission_and_its_start() -> None:
    passes_s = [0.0, 30.0, 60.0]
    assert passes_waited(start(submit_s=5, delay_s=1), passes_s) == 0
    assert passes_waited(start(submit_s=5, delay_s=25.1), passes_s) == 1
    assert passes_waited(start(submit_s=5, delay_s=60), passes_s) == 2
    assert passes_waited(start(submit_s=5, delay_s=None), passes_s) == math.inf


def test_idle_time_counts_from_the_first_pass_that_saw_it() -> None:
    passes_s = [0.0, 30.0, 60.0, 90.0]
    starts = [start(submit_s=5, delay_s=5, runs_s=40, on=("n1",))]  # from 10 to 50
    # n1 from 0 to 10 and from 60 to 100, n2 from 0 to 100
    assert idle_after_pass_s(starts, 2, passes_s, 0, 100) == pytest.approx(10 + 40 + 100)


def test_holes_that_are_too_short_for_any_time_limit_are_told_apart() -> None:
    starts = [
        start(submit_s=5, delay_s=5, runs_s=40, on=("n1",))
    ]  # n1 is idle for 40 s after a pass
    assert idle_after_pass_s(starts, 1, [30.0, 60.0], 0, 100, shortest_s=60) == 0
    assert idle_after_pass_s(starts, 1, [30.0, 60.0], 0, 100, shortest_s=40) == 40


def test_a_hole_that_no_pass_saw_counts_nothing() -> None:
    starts = [
        start(submit_s=0, delay_s=0, runs_s=35, on=("n1",)),
        start(submit_s=40, delay_s=0, runs_s=60, on=("n1",)),  # idle from 35 to 40
    ]
    assert idle_after_pass_s(starts, 1, [0.0, 30.0, 60.0], 0, 100) == 0


def test_elements_are_what_else_was_given_nodes() -> None:
    log = {
        ("allocated", 1): [(5.0, "")],  # the ordinary job
        ("known", 1): [(25.0, "n1")],
        ("allocated", 9): [(-5.0, ""), (30.0, "")],
        ("known", 9): [(4.0, "n1"), (90.0, "n2")],
        ("allocated", 8): [(50.0, "")],  # and still runs
    }
    assert elements_s(log, [start(number=1)], 0, 70) == pytest.approx(4 + 40 + 20)


def test_a_job_preempts_once_however_many_elements_it_takes() -> None:
    log = {("preempted", 1): [(5.0, "8"), (5.0, "9")], ("preempted", 7): [(5.0, "8")]}
    assert preempting(log, [start(number=1), start(number=2)]) == 1


@pytest.mark.parametrize(
    ("off_s", "on_s", "apart_s"),
    [
        ([0.0, 30.1, 60.2], [0.0, 30.0, 60.0], 0.2),
        ([0.0, 30.0], [0.0, 11.0, 30.0], 11.0),
        ([0.0, 30.0], [33.0], 3.0),
        ([], [1.0], 0.0),
    ],
)
def test_a_pass_is_out_of_phase_with_the_nearest_one(off_s, on_s, apart_s) -> None:  # type: ignore[no-untyped-def]
    assert out_of_phase_s(off_s, on_s) == pytest.approx(apart_s)
