"""What is said of the two sides is true of them: delays, passes missed, what was idle and used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from scripts.benchkit.figures import Summary
from scripts.impact_bench.course import Start
from scripts.impact_bench.figures import (
    Measured,
    Side,
    beside_ordinary_jobs,
    compared,
    elements_s,
    figures_of,
    holes_after_pass_s,
    passes_waited,
    preempts,
    targets,
)
from scripts.impact_bench.slurmlog import Log
from scripts.impact_bench.trainers import Work
from tests.impact_bench.starts import start


def compare(off_s: list[float | None], on_s: list[float | None]) -> dict[str, Summary]:
    """Compare jobs that started so long after their submission."""
    return compared(
        (start(delay_s=one), start(delay_s=other)) for one, other in zip(off_s, on_s, strict=True)
    )


def test_a_jobs_delay_is_from_its_sbatch_to_its_first_line() -> None:
    assert start(submit_s=10.0, delay_s=0.25).delay_s == pytest.approx(0.25)


def test_delays_are_of_the_same_jobs_on_both_sides_and_the_difference_is_of_each_job() -> None:
    found = compare([1.0, 2.0, 2.0, 9.0], [3.0, None, 2.5, 9.1])
    assert {one.count for one in found.values()} == {3}
    assert found["difference"].median == pytest.approx(0.5)
    assert found["with"].median - found["without"].median == pytest.approx(1.0)


def test_a_makespan_ends_with_the_last_job() -> None:
    starts = [start(submit_s=0, delay_s=1, runs_s=20), start(submit_s=10, delay_s=1, runs_s=2)]
    assert Side("without", starts).makespan_s == pytest.approx(21)


def test_a_stream_of_which_nothing_ended_has_no_makespan() -> None:
    assert math.isnan(Side("without", [start(delay_s=None)]).makespan_s)


@pytest.mark.parametrize(
    ("job", "failed"),
    [
        (start(), 0),
        (start(state="FAILED"), 1),
        (start(delay_s=None, state="PENDING"), 1),
        (start(restarts=1), 1),
    ],
    ids=["ran well", "failed", "never started", "was requeued"],
)
def test_a_job_fails_that_does_not_run_once_and_well(job, failed) -> None:  # type: ignore[no-untyped-def]
    assert Side("without", [job]).failed == failed


FINE: dict[str, float | None] = {
    "missed": 1.0, "preempted": 1.0, "resized": 1.0, "makespan": 0.2, "used": 90.0
}  # fmt: skip


def missed(
    later_s: float = 0.04, failed: int = 0, left: int = 0, **shares: float | None
) -> list[str]:
    found = targets(compare([0.1] * 100, [0.1 + later_s] * 100), FINE | shares, failed, left)
    return [one.text.partition(",")[0] for one in found if not one.met]


def test_all_targets_can_be_met() -> None:
    assert missed() == []


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"later_s": 0.1}, ["median of the differences"]),
        ({"missed": 1.1}, ["jobs that missed a pass"]),
        ({"preempted": 2.1}, ["jobs that preempted an element"]),
        ({"resized": 1.1}, ["jobs on another number of nodes"]),
        ({"moved": 3.1}, ["jobs on other nodes"]),
        ({"displaced": 3.1}, ["jobs that trainers displaced"]),
        ({"makespan": 0.4}, ["makespan longer by"]),
        ({"used": 84.0}, ["idle node-seconds used"]),
        ({"used": None}, []),
        ({"failed": 1}, ["jobs failed that did not without"]),
        ({"left": 1}, ["processes of trainers left behind"]),
    ],
    ids=str,
)
def test_what_is_too_much_misses_its_target(changes: Any, names: list[str]) -> None:
    assert missed(**changes) == names


def test_a_job_waits_for_the_passes_between_its_submission_and_its_start() -> None:
    passes_s = [0.0, 30.0, 60.0]
    assert passes_waited(start(submit_s=5, delay_s=1), passes_s) == 0
    assert passes_waited(start(submit_s=5, delay_s=25.1), passes_s) == 1
    assert passes_waited(start(submit_s=5, delay_s=60), passes_s) == 2
    assert passes_waited(start(submit_s=5, delay_s=None), passes_s) == math.inf


def side(*starts: Start, passes_s: Sequence[float] = (), log: Log | None = None) -> Side:
    return Side("without", starts, passes_s=passes_s, log=log or {})


def test_idle_time_counts_from_the_first_pass_that_saw_it() -> None:
    one = start(submit_s=5, delay_s=5, runs_s=40, on=("n1",))  # from 10 to 50
    off = side(one, passes_s=[0.0, 30.0, 60.0, 90.0])
    # n1 from 0 to 10 and from 60 to 100, n2 from 0 to 100
    assert holes_after_pass_s(off, 2, 100) == pytest.approx([10, 40, 100])


def test_a_hole_is_as_long_as_it_lasts_after_the_pass() -> None:
    one = start(submit_s=5, delay_s=5, runs_s=40, on=("n1",))
    # The pass before it saw nothing idle.
    assert holes_after_pass_s(side(one, passes_s=[30.0, 60.0]), 1, 100) == [40]


def test_where_jobs_share_a_node_each_gpu_is_idle_from_the_first_pass_that_sees_it() -> None:
    three = start(submit_s=5, delay_s=5, runs_s=40, on=("n1",), gpus=3)  # from 10 to 50
    six = start(submit_s=70, delay_s=10, runs_s=40, on=("n1",), gpus=6)  # from 80 on
    off = side(three, six, passes_s=[0.0, 30.0, 60.0, 90.0])
    # From 0 to 10 three; five until 80, when two stay; the other three from 60 on, until 80 too.
    assert sorted(holes_after_pass_s(off, 1, 100, gpus=8)) == pytest.approx(
        [10, 10, 10, 20, 20, 20, 80, 80, 80, 100, 100]
    )


def test_an_element_has_the_gpus_of_its_trainer_or_all_of_its_node() -> None:
    lines = [(10.0, "7")], [(20.0, "8")]
    log: Log = {("allocated", 71): lines[0], ("allocated", 81): lines[1]}
    on = side(log=log)
    on.work = Work(parts={"7": 2})
    assert elements_s(on, 30.0, gpus=8) == pytest.approx(20 * 2 + 10 * 8)


def test_a_hole_that_no_pass_saw_counts_nothing() -> None:
    off = side(
        start(submit_s=0, delay_s=0, runs_s=35, on=("n1",)),
        start(submit_s=40, delay_s=0, runs_s=60, on=("n1",)),  # idle from 35 to 40
        passes_s=[0.0, 30.0, 60.0],
    )
    assert sum(holes_after_pass_s(off, 1, 100)) == 0


def test_elements_are_what_else_was_given_nodes() -> None:
    log = {
        ("allocated", 1): [(5.0, "")],  # the ordinary job
        ("known", 1): [(25.0, "n1")],
        ("allocated", 9): [(-5.0, ""), (30.0, "")],
        ("known", 9): [(4.0, "n1"), (90.0, "n2")],
        ("allocated", 8): [(50.0, "")],  # and still runs
    }
    assert elements_s(side(start(number=1), log=log), 70) == pytest.approx(4 + 40 + 20)


def test_a_job_preempts_once_however_many_elements_it_takes() -> None:
    log = {("preempted", 1): [(5.0, "8"), (5.0, "9")], ("preempted", 7): [(5.0, "8")]}
    starts = [start(number=1), start(number=2)]
    assert [preempts(side(log=log), one) for one in starts] == [True, False]


def test_a_job_may_have_another_number_of_nodes_than_without_trainers() -> None:
    off = [start(on=("n1",)), start(on=("n1", "n2")), start(on=("n2", "n1")), start()]
    on = [start(on=("n1",)), start(on=("n3",)), start(on=("n1", "n3")), start()]
    assert figures_of(Measured(side(*off), side(*on), 3)).shares["resized"] == 25


def log_of(*jobs: Start) -> Log:
    """Each job is submitted half a second before the second of its number, when it starts."""
    log = {("submitted", one.number): [(one.number - 0.5, "")] for one in jobs}
    return log | {("allocated", one.number): [(float(one.number), "")] for one in jobs}


def test_a_job_is_displaced_that_slurm_would_have_put_elsewhere_beside_the_ordinary_jobs() -> None:
    jobs = (
        start(number=1, on=("n1",), gpus=4),
        start(number=2, on=("n2",), gpus=2),  # there was room on n1
        start(number=3, on=("n2",), gpus=6),  # because of that one n2 is the tightest
        start(number=4, on=("n1",), gpus=8),  # the first one has ended
    )
    log: Log = {**log_of(*jobs), ("known", 1): [(4.0, "n1")]}
    found = beside_ordinary_jobs(side(*jobs, log=log), 2, gpus=8)
    assert [displaced for displaced, _ in found] == [False, True, False, False]


def test_of_whole_nodes_a_job_gets_the_first_ones_of_the_smallest_run() -> None:
    jobs = start(number=1, on=("n2",)), start(number=2, on=("n1",)), start(number=3, on=("n4",))
    found = beside_ordinary_jobs(side(*jobs, log=log_of(*jobs)), 4)
    assert [displaced for displaced, _ in found] == [True, False, True]


def test_what_backfill_starts_is_left_out_since_it_keeps_nodes_for_others() -> None:
    one = start(number=1, on=("n2",))
    log: Log = {**log_of(one), ("backfilled", 1): [(1.0, "")]}
    assert beside_ordinary_jobs(side(one, log=log), 4) == []


def test_elements_hold_a_job_up_from_the_first_look_at_which_it_would_have_started() -> None:
    jobs = (
        start(number=1, on=("n1",), gpus=8),
        start(number=9, on=("n1",), gpus=8),  # waits for the first one, which ends at 8.6
    )
    log: Log = {**log_of(*jobs), ("known", 1): [(8.6, "n1")], ("submitted", 9): [(2.0, "")]}
    beside = Side("with", jobs, looks_s=(0.75, 1.0, 3.0, 8.75, 9.0), log=log)
    assert [held_s for _, held_s in beside_ordinary_jobs(beside, 1, gpus=8)] == [0.25, 0.25]
