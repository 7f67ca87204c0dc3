"""What is said of the two sides is true of them: delays, passes missed, what was idle and used."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.figures import (
    Side,
    Start,
    beside_ordinary_jobs,
    delays_s,
    elements_s,
    figures_of,
    idle_after_pass_s,
    passes_waited,
    targets,
)
from scripts.impact_bench.slurmlog import Event


def start(
    submit_s: float = 0.0,
    delay_s: float | None = 0.1,
    runs_s: float = 5.0,
    number: int = 1,
    on: tuple[str, ...] = (),
    gpus: int = 0,
    state: str = "COMPLETED",
    restarts: int = 0,
) -> Start:
    """Return a job that started so long after its submission; None: never."""
    job, start_s = OrdinaryJob(submit_s, 1, runs_s, gpus=gpus), None
    if delay_s is not None:
        start_s = submit_s + delay_s
    end_s = None if start_s is None else start_s + runs_s
    return Start(job, number, submit_s, start_s, end_s, state, restarts, on)


def side(*starts: Start, passes_s: Sequence[float] = (), log: Sequence[Event] = ()) -> Side:
    return Side("", starts, log=[*log, *(Event(at_s, "pass") for at_s in passes_s)])


def test_delays_are_of_the_same_jobs_on_both_sides_and_the_difference_is_of_each_job() -> None:
    off, on = (
        side(*(start(submit_s=10, delay_s=one) for one in delays))
        for delays in ((1.0, 2.0, 2.0, 9.0), (3.0, None, 2.5, 9.1))
    )
    found = delays_s(off, on, 1)
    assert [found[name].count for name in ("without", "with", "difference")] == [3, 3, 3]
    assert found["difference"].median == pytest.approx(0.5)
    assert found["with"].median - found["without"].median == pytest.approx(1.0)


def test_a_makespan_ends_with_the_last_job_if_any_ended() -> None:
    starts = [start(submit_s=0, delay_s=1, runs_s=20), start(submit_s=10, delay_s=1, runs_s=2)]
    assert side(*starts).makespan_s == pytest.approx(21)
    assert math.isnan(side(start(delay_s=None)).makespan_s)


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
    assert side(job).failed == failed


FINE = {
    "jobs that missed a pass, %": 1.0,
    "jobs that preempted an element, %": 2.0,
    "jobs on other nodes, %": 3.0,
    "jobs that trainers displaced, %": 3.0,
    "makespan longer by, %": 0.3,
    "jobs failed that did not without": 0.0,
    "idle node-seconds used, %": 85.0,
}


def missed(figures: dict[str, float], later_s: float = 0.04, gpus: int = 8) -> list[str]:
    off, on = (side(*[start(delay_s=delay_s)] * 100) for delay_s in (0.1, 0.1 + later_s))
    found = targets(delays_s(off, on, 1), figures, gpus)
    return [one.text for one in found if not one.met]


@pytest.mark.parametrize("name", ["", *FINE])
def test_all_targets_can_be_met_and_what_is_too_much_misses_its_own(name: str) -> None:
    worse = {name: FINE[name] + (-1 if "used" in name else 0.1)} if name else {}
    assert missed(FINE | worse) == [*worse]


def test_jobs_that_start_later_miss_the_target() -> None:
    assert missed(FINE, later_s=0.1) == ["median of the differences, s"]


def test_which_whole_nodes_a_job_has_and_unused_nodes_that_there_were_not_are_not_judged() -> None:
    elsewhere = FINE | {"jobs on other nodes, %": 50.0, "jobs that trainers displaced, %": 50.0}
    del elsewhere["idle node-seconds used, %"]
    assert missed(elsewhere, gpus=1) == []


def test_a_job_waits_for_the_passes_between_its_submission_and_its_start() -> None:
    passes_s = [0.0, 30.0, 60.0]
    assert passes_waited(start(submit_s=5, delay_s=1), passes_s) == 0
    assert passes_waited(start(submit_s=5, delay_s=25.1), passes_s) == 1
    assert passes_waited(start(submit_s=5, delay_s=60), passes_s) == 2
    assert passes_waited(start(submit_s=5, delay_s=None), passes_s) == math.inf


PASSES_S = (0.0, 30.0, 60.0, 90.0)
TO_50 = start(submit_s=5, delay_s=5, runs_s=40, on=("n1",))  # from 10 on
SHARED = (
    start(submit_s=5, delay_s=5, runs_s=40, on=("n1",), gpus=3),  # from 10 to 50
    start(submit_s=70, delay_s=10, runs_s=40, on=("n1",), gpus=6),  # from 80 on
)
BRIEF = (
    start(submit_s=0, delay_s=0, runs_s=35, on=("n1",)),
    start(submit_s=40, delay_s=0, runs_s=60, on=("n1",)),  # idle from 35 to 40
)


@pytest.mark.parametrize(
    ("starts", "passes_s", "nodes", "gpus", "idle_s"),
    [
        # n1 from 0 to 10 and from 60 to 100, n2 from 0 to 100
        ([TO_50], PASSES_S, 2, 1, 10 + 40 + 100),
        ([TO_50], (30.0, 60.0), 1, 1, 40),
        # From 0 to 10 three; five until 80, when two stay; the other three from 60 on, until 80.
        (SHARED, PASSES_S, 1, 8, 3 * 10 + 3 * 20 + 3 * 80 + 2 * 100),
        (BRIEF, PASSES_S[:3], 1, 1, 0),
    ],
    ids=["as long as it lasts", "not before it", "each GPU of a node", "none that no pass saw"],
)
def test_idle_time_counts_from_the_first_pass_that_saw_it(
    starts: Sequence[Start], passes_s: Sequence[float], nodes: int, gpus: int, idle_s: float
) -> None:
    found_s = idle_after_pass_s(side(*starts, passes_s=passes_s), nodes, 100, gpus)
    assert found_s == pytest.approx(idle_s)


def test_an_element_has_the_gpus_of_its_trainer_or_all_of_its_node() -> None:
    on = side(log=[Event(10.0, "allocated", 71, "7"), Event(20.0, "allocated", 81, "8")])
    on.parts = {"7": 2}
    assert elements_s(on, 30.0, gpus=8) == pytest.approx(20 * 2 + 10 * 8)


def test_elements_are_what_else_was_given_nodes() -> None:
    log = [
        Event(5.0, "allocated", 1),  # the ordinary job
        Event(25.0, "known", 1, "n1"),
        Event(-5.0, "allocated", 9),
        Event(4.0, "known", 9, "n1"),
        Event(30.0, "allocated", 9),
        Event(90.0, "known", 9, "n2"),
        Event(50.0, "allocated", 8),  # and still runs
    ]
    assert elements_s(side(start(number=1), log=log), 70) == pytest.approx(4 + 40 + 20)


def test_a_job_preempts_once_however_many_elements_it_takes() -> None:
    log = [Event(5.0, "preempted", job, other) for job, other in ((1, "8"), (1, "9"), (7, "8"))]
    jobs = start(number=1), start(number=2)
    assert (
        figures_of(side(*jobs), side(*jobs, log=log), 1)["jobs that preempted an element, %"] == 50
    )


def test_a_job_misses_a_pass_and_has_other_nodes_than_without_trainers() -> None:
    passes_s = [30.0, 60.0, 90.0]
    off = side(start(delay_s=31, on=("n1", "n2")), start(on=("n1",)), passes_s=passes_s)
    on = side(start(delay_s=61, on=("n2", "n1")), start(on=("n2",)), passes_s=passes_s)
    found = figures_of(off, on, 2)
    assert (found["jobs that missed a pass, %"], found["jobs on other nodes, %"]) == (50, 50)


def log_of(*jobs: Start) -> list[Event]:
    """Each job is submitted half a second before the second of its number, when it starts."""
    kinds = ((0.5, "submitted"), (0.0, "allocated"))
    return [Event(one.number - ago_s, kind, one.number) for one in jobs for ago_s, kind in kinds]


def test_a_job_is_displaced_that_slurm_would_have_put_elsewhere_beside_the_ordinary_jobs() -> None:
    jobs = (
        start(number=1, on=("n1",), gpus=4),
        start(number=2, on=("n2",), gpus=2),  # there was room on n1
        start(number=3, on=("n2",), gpus=6),  # because of that one n2 is the tightest
        start(number=4, on=("n1",), gpus=8),  # the first one has ended
    )
    log = [*log_of(*jobs), Event(4.0, "known", 1, "n1")]
    found = beside_ordinary_jobs(side(*jobs, log=log), 2, gpus=8)
    assert [displaced for displaced, _ in found] == [False, True, False, False]


def test_a_job_is_not_held_up_while_the_jobs_before_it_would_take_its_place() -> None:
    one, two = start(number=1, on=("n1",), gpus=6), start(number=2, on=("n1",), gpus=6)
    log = [Event(0.0, "submitted", 1), Event(0.0, "submitted", 2), Event(0.5, "look")]
    log += [Event(1.0, "allocated", 1), Event(5.0, "known", 1, "n1"), Event(5.5, "look")]
    log.append(Event(6.0, "allocated", 2))
    found = beside_ordinary_jobs(side(one, two, log=log), 1, gpus=8)
    assert [held_s for _, held_s in found] == [0.5, 0.5]


def test_of_whole_nodes_a_job_gets_the_first_ones_of_the_smallest_run() -> None:
    jobs = start(number=1, on=("n2",)), start(number=2, on=("n1",)), start(number=3, on=("n4",))
    found = beside_ordinary_jobs(side(*jobs, log=log_of(*jobs)), 4)
    assert [displaced for displaced, _ in found] == [True, False, True]


def test_what_backfill_starts_is_left_out_since_it_keeps_nodes_for_others() -> None:
    one = start(number=1, on=("n2",))
    assert beside_ordinary_jobs(side(one, log=[*log_of(one), Event(1.0, "backfilled", 1)]), 4) == []


def test_elements_hold_a_job_up_from_the_first_look_at_which_it_would_have_started() -> None:
    jobs = (
        start(number=1, on=("n1",), gpus=8),
        start(number=9, on=("n1",), gpus=8),  # waits for the first one, which ends at 8.6
    )
    looks = [Event(at_s, "look") for at_s in (0.75, 1.0, 3.0, 8.75, 9.0)]
    log = [*log_of(*jobs), *looks, Event(8.6, "known", 1, "n1")]
    log = [one._replace(at_s=2.0) if one == (8.5, "submitted", 9, "") else one for one in log]
    found = beside_ordinary_jobs(side(*jobs, log=log), 1, gpus=8)
    assert [held_s for _, held_s in found] == [0.25, 0.25]
