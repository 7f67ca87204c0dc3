"""Ordinary jobs played back beside trainers, with times that can be checked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.cli.simulation import run_live
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.ordinary import Change, Pass
from bftrainer_slurm.replay.playback import PREEMPTION_S, OrdinaryJobs, PlayedJob, Started
from tests.replay.traces import T0, holes, trainer

PARTITION = frozenset({"p"})
LENGTH_S = 300.0
PASSES = [Pass(T0 + 30 * number, T0 + 30 * number) for number in range(12)]


def job(
    start: float,
    takes: Sequence[int],
    eligible: float | None = None,
    backfilled: bool = True,
    priority: int = 0,
) -> PlayedJob:
    """A job that the log starts at a second of the trace, on nodes whose holes end there."""
    since = T0 + (start if eligible is None else eligible)
    at = T0 + start
    return PlayedJob(since, at, at, len(takes), tuple(takes), backfilled, priority, "p")


def played(
    rows: Sequence[tuple[str, float, float]], *jobs: PlayedJob, kinds: str = "ppp"
) -> OrdinaryJobs:
    trace = holes(*rows, end=LENGTH_S)
    return OrdinaryJobs(
        trace, jobs, PASSES, [frozenset({kind}) for kind in kinds[: len(trace.nodes)]]
    )


def until(ordinary: OrdinaryJobs, seconds: float, *harvested: str) -> Change:
    """Play up to a second of the trace, moment by moment; trainers keep the same nodes."""
    change = Change()
    while (next_s := ordinary.next_s()) <= T0 + seconds:
        here = ordinary.advance(next_s, set(harvested) - change.taken - change.cleared)
        change.taken = (change.taken | here.taken) - here.freed
        change.cleared |= here.cleared
    return change


def only(started: list[Started]) -> Started:
    (one,) = started
    return one


def test_a_job_finds_idle_nodes_as_in_the_log() -> None:
    ordinary = played([("a", 0, 60), ("b", 0, 60)], job(60, [0, 1]))
    assert until(ordinary, 60).taken == {"a", "b"}
    assert only(ordinary.close(T0 + LENGTH_S)) == Started(0.0, 0, False)


def test_backfill_gives_a_job_the_nodes_of_trainers_one_pass_later() -> None:
    ordinary = played([("a", 0, 60), ("b", 0, 60)], job(60, [0, 1], eligible=10))
    first = until(ordinary, 60, "a")
    assert (first.taken, first.cleared) == (set(), {"a"})
    assert until(ordinary, 90).taken == {"a", "b"}
    assert only(ordinary.close(T0 + LENGTH_S)) == Started(30.0, 1, True)


def test_the_main_scheduler_gives_them_to_it_a_moment_later() -> None:
    ordinary = played([("a", 0, 70)], job(70, [0], backfilled=False))
    change = until(ordinary, 70, "a")
    assert change.taken == change.cleared == {"a"}
    assert only(ordinary.close(T0 + LENGTH_S)) == Started(PREEMPTION_S, 0, True)


def test_a_job_takes_another_idle_node_that_looks_alike() -> None:
    ordinary = played([("a", 0, 60), ("b", 0, 200)], job(60, [0]))
    assert until(ordinary, 60, "a").taken == {"b"}
    assert only(ordinary.close(T0 + LENGTH_S)).late_s == 0


def test_and_leaves_the_one_that_it_took() -> None:
    ordinary = played([("a", 0, 60), ("a", 120, 300), ("b", 0, 200)], job(60, [0]))
    until(ordinary, 119, "a")
    assert ordinary.advance(T0 + 120, {"a"}).freed == {"b"}


def test_a_node_of_another_partition_does_not_look_alike() -> None:
    ordinary = played([("a", 0, 60), ("b", 0, 200)], job(60, [0]), kinds="pq")
    assert until(ordinary, 60, "a").cleared == {"a"}


def test_no_element_starts_in_that_pass_where_others_were_preempted() -> None:
    ordinary = played([("a", 0, 60), ("b", 0, 60)], job(60, [0, 1], eligible=10))
    until(ordinary, 60, "a")
    assert ordinary.promised() == {"a", "b"}
    until(ordinary, 90)
    assert not ordinary.promised()


def test_a_late_job_ends_as_much_later() -> None:
    rows = [("a", 0, 60), ("a", 200, 300)]
    ordinary = played(rows, job(60, [0], eligible=10))
    until(ordinary, 60, "a")
    assert "a" in until(ordinary, 229).taken
    assert ordinary.advance(T0 + 230, set()).freed == {"a"}


def test_who_gets_its_nodes_waits_for_that() -> None:
    rows = [("a", 0, 60), ("a", 100, 120)]
    ordinary = played(rows, job(60, [0], eligible=10), job(120, [0], eligible=10, backfilled=False))
    until(ordinary, 60, "a")
    until(ordinary, 300)
    assert [one.late_s for one in ordinary.close(T0 + LENGTH_S)] == [30.0, 10.0]


def test_a_job_shorter_than_its_delay_still_has_its_time() -> None:
    ordinary = played([("a", 0, 60), ("a", 70, 300)], job(60, [0], eligible=10))
    until(ordinary, 60, "a")
    assert until(ordinary, 99).taken == {"a"}
    assert ordinary.advance(T0 + 100, set()).freed == {"a"}


def test_a_job_of_higher_priority_comes_first() -> None:
    rows = [("a", 0, 60), ("b", 0, 60)]
    ordinary = played(rows, job(60, [0], priority=1), job(60, [1], priority=2))
    until(ordinary, 60, "a")
    assert [one.late_s for one in ordinary.close(T0 + 60)] == [0.0, 0.0]
    assert ordinary.started[1] == Started(0.0, 0, False)


def test_a_hole_that_no_job_ends_is_over_at_once() -> None:
    ordinary = played([("a", 0, 60)])
    assert until(ordinary, 60, "a").taken == {"a"}


def test_jobs_wait_from_when_they_are_eligible_until_they_start() -> None:
    gone = PlayedJob(T0 + 5, float("inf"), T0 + 40, 7, partition="p")
    ordinary = played([("a", 0, 60)], job(60, [0], eligible=20), gone)
    seen = {}
    for at in (0, 5, 20, 40, 60):
        ordinary.advance(T0 + at, set())
        seen[at] = [one.job_id for one in ordinary.waiting()]
    assert seen == {0: [], 5: [1], 20: [1, 0], 40: [0], 60: []}


def test_elements_start_in_passes_while_a_job_waits() -> None:
    ordinary = played([("a", 0, 60)], job(60, [0], eligible=20))
    ordinary.advance(T0, set())
    assert ordinary.starts_elements(T0, T0 + 1)
    ordinary.advance(T0 + 20, set())
    assert not ordinary.starts_elements(T0 + 20, T0 + 29)
    assert ordinary.starts_elements(T0 + 20, T0 + 30)


def test_sdiag_tells_the_last_pass() -> None:
    ordinary = played([("a", 0, 60)])
    found = ordinary.last_pass(T0 + 59)
    assert found is not None
    assert (found.began_s, found.active) == (T0 + 30, False)


# The controller's own loop beside played jobs.


def lateness(rows: Sequence[tuple[str, float, float]], *jobs: PlayedJob, planner: Planner):  # type: ignore[no-untyped-def]
    ordinary = played(rows, *jobs)
    span_s = (T0, T0 + LENGTH_S)
    outcome = run_live(ordinary, span_s, [trainer(submit_s=T0)], 1, 30.0, planner)
    return ordinary.close(T0 + LENGTH_S), outcome


BLOCKED = PlayedJob(T0, float("inf"), T0 + LENGTH_S, 99, partition="p")  # waits at the head


def test_trainers_leave_ahead_of_the_pass_that_serves_a_job(planner: Planner) -> None:
    rows = [("a", 0, 120), ("b", 0, 300)]
    started, outcome = lateness(rows, BLOCKED, job(120, [0], eligible=100), planner=planner)
    assert started == [Started(0.0, 0, False)]
    assert outcome.used_node_hours * 3600 > 300


def test_trainers_cannot_leave_ahead_of_a_job_that_starts_as_it_comes(planner: Planner) -> None:
    rows = [("a", 0, 125), ("b", 0, 125)]
    started, _ = lateness(rows, job(125, [0, 1], backfilled=False), planner=planner)
    assert started == [Started(PREEMPTION_S, 0, True)]


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_whatever_the_log_all_jobs_start_and_no_node_has_two_users(
    planner: Planner, data: st.DataObject
) -> None:
    rows, jobs = [], []
    for number, node in enumerate("abc"):
        at = 0
        for _ in range(data.draw(st.integers(1, 3))):
            begin = at + data.draw(st.integers(1, 40))
            at = begin + data.draw(st.integers(1, 40))
            rows.append((node, float(begin), float(at)))
            backfilled, waited = data.draw(st.booleans()), data.draw(st.integers(0, 100))
            jobs.append(job(float(at), [number], max(0.0, at - waited), backfilled))
    rows.append(("d", 0.0, 300.0))
    ordinary = played(rows, *jobs, kinds="pppq")
    # That an element starts only on a node that is nobody's, the cluster checks itself.
    run_live(ordinary, (T0, T0 + 600), [trainer(submit_s=T0)], 1, 30.0, planner)
    started = ordinary.close(T0 + 600)
    assert len(started) == len(jobs)
    # At most a pass for each job that backfill starts, and one for each that waits for it.
    assert all(0 <= one.late_s <= 31 * len(jobs) for one in started)


def test_nothing_is_late_without_trainers() -> None:
    rows = [("a", 0, 60), ("a", 90, 125), ("b", 30, 60)]
    jobs = [job(60, [0, 1]), job(125, [0], backfilled=False)]
    ordinary = played(rows, *jobs)
    until(ordinary, 300)
    assert [one.late_s for one in ordinary.close(T0 + LENGTH_S)] == pytest.approx([0, 0])


@pytest.mark.parametrize(("limit_s", "minutes"), [(5400.0, 90), (math.inf, None)])
def test_the_controller_sees_how_long_a_waiting_job_may_run(
    limit_s: float, minutes: int | None
) -> None:
    waits = replace(job(90, (0,), eligible=30), limit_s=limit_s)
    ordinary = played([("a", 0, 90)], waits)
    until(ordinary, 60)
    assert [one.minutes for one in ordinary.waiting()] == [minutes]
