"""Ordinary jobs played back beside trainers, with times that can be checked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.cli.simulation import run_live
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.ordinary import Pass, passes_of
from bftrainer_slurm.replay.playback import PREEMPTION_S, OrdinaryJobs, PlayedJob, Started
from tests.controller.worlds import cases
from tests.replay.traces import T0, holes, trainer

LENGTH_S = 300.0
PASSES = [Pass(T0 + 30 * number, T0 + 30 * number) for number in range(12)]
IN_TIME, A_PASS_LATE = Started(0.0, 0, False), Started(30.0, 1, True)
Hole = tuple[str, float, float]


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


def played(rows: Sequence[Hole], *jobs: PlayedJob, kinds: str = "ppp") -> OrdinaryJobs:
    trace = holes(*rows, end=LENGTH_S)
    return OrdinaryJobs(
        trace, jobs, PASSES, [frozenset({kind}) for kind in kinds[: len(trace.nodes)]]
    )


def until(ordinary: OrdinaryJobs, seconds: float, harvested: str, taken: set[str]) -> set[str]:
    """Play up to a second of the trace, moment by moment; trainers leave for jobs alone.

    Return the nodes for which they have left, and change those that ordinary jobs have taken.
    """
    cleared: set[str] = set()
    while (next_s := ordinary.next_s()) <= T0 + seconds:
        here = ordinary.advance(next_s, set(harvested) - taken - cleared)
        taken |= here.taken
        taken -= here.freed
        cleared |= here.cleared
    return cleared


A, AB = [("a", 0, 60)], [("a", 0, 60), ("b", 0, 60)]
AND_B = [("a", 0, 60), ("b", 0, 200)]
LATE = job(60, [0], eligible=10)


@cases(
    "ordinary, harvested, looks, started",
    finds_idle_nodes_as_in_the_log=(
        *(played(AB, job(60, [0, 1])), "", {60: ("ab", "")}, {0: IN_TIME}),
    ),
    by_backfill_gets_those_of_trainers_one_pass_later=(
        *(played(AB, job(60, [0, 1], eligible=10)), "a"),
        *({60: ("", "a"), 89: ("", ""), 90: ("ab", "")}, {0: A_PASS_LATE}),
    ),
    by_the_main_scheduler_a_moment_later=(
        *(played([("a", 0, 70)], job(70, [0], backfilled=False)), "a"),
        *({70: ("a", "a")}, {0: Started(PREEMPTION_S, 0, True)}),
    ),
    takes_another_idle_node_that_looks_alike_and_leaves_that_one=(
        *(played([*AND_B, ("a", 120, 300)], job(60, [0])), "a"),
        *({60: ("b", ""), 119: ("b", ""), 120: ("", "")}, {0: IN_TIME}),
    ),
    takes_none_of_another_partition=(
        *(played(AND_B, job(60, [0]), kinds="pq"), "a", {60: ("", "a")}, {0: A_PASS_LATE}),
    ),
    that_is_late_ends_as_much_later=(
        *(played([*A, ("a", 200, 300)], LATE), "a"),
        *({60: ("", "a"), 229: ("a", ""), 230: ("", "")}, {0: A_PASS_LATE}),
    ),
    waits_for_one_that_has_its_nodes_for_longer=(
        played([*A, ("a", 100, 120)], LATE, job(120, [0], eligible=10, backfilled=False)),
        *("a", {60: ("", "a"), 300: ("a", "")}),
        {0: A_PASS_LATE, 1: Started(10.0, 0, False)},
    ),
    shorter_than_its_delay_still_has_its_time=(
        *(played([*A, ("a", 70, 300)], LATE), "a"),
        *({60: ("", "a"), 99: ("a", ""), 100: ("", "")}, {0: A_PASS_LATE}),
    ),
    of_higher_priority_comes_first=(
        played([*AB, ("c", 0, 200)], job(60, [0], priority=1), job(60, [1], priority=2)),
        *("ab", {60: ("c", "a")}, {1: IN_TIME, 0: A_PASS_LATE}),
    ),
    need_not_be_there_for_a_hole_to_end=(played(A), "a", {60: ("a", "")}, {}),
)
def test_a_job(
    ordinary: OrdinaryJobs,
    harvested: str,
    looks: dict[float, tuple[str, str]],
    started: dict[int, Started],
) -> None:
    """At each look: which nodes ordinary jobs have taken, and for which trainers have just left."""
    taken: set[str] = set()
    gone: set[str] = set()
    for second, (its, left) in looks.items():
        cleared = until(ordinary, second, "".join(set(harvested) - gone), taken)
        gone |= cleared
        assert (second, taken, cleared) == (second, set(its), set(left))
    until(ordinary, LENGTH_S, "".join(set(harvested) - gone), taken)
    ordinary.close(T0 + LENGTH_S)
    assert ordinary.started == started


def test_no_element_starts_in_that_pass_where_others_were_preempted() -> None:
    ordinary = played(AB, job(60, [0, 1], eligible=10))
    until(ordinary, 60, "a", set())
    assert ordinary.promised() == {"a", "b"}
    until(ordinary, 90, "", set())
    assert not ordinary.promised()


def test_jobs_wait_from_when_they_are_eligible_until_they_start() -> None:
    gone = PlayedJob(T0 + 5, math.inf, T0 + 40, 7, partition="p")
    ordinary = played(A, replace(job(60, [0], eligible=20), limit_s=5400.0), gone)
    seen = {}
    for at in (0, 5, 20, 40, 60):
        ordinary.advance(T0 + at, set())
        seen[at] = [(one.job_id, one.minutes) for one in ordinary.waiting()]
    assert seen == {0: [], 5: [(1, None)], 20: [(1, None), (0, 90)], 40: [(0, 90)], 60: []}


def test_elements_start_in_passes_while_a_job_waits() -> None:
    ordinary = played(A, job(60, [0], eligible=20))
    ordinary.advance(T0, set())
    assert ordinary.starts_elements(T0, T0 + 1)
    ordinary.advance(T0 + 20, set())
    assert not ordinary.starts_elements(T0 + 20, T0 + 29)
    assert ordinary.starts_elements(T0 + 20, T0 + 30)


def test_sdiag_tells_the_last_pass() -> None:
    found = played(A).last_pass(T0 + 59)
    assert (found.began_s, found.active) == (T0 + 30, False)


def test_each_backfilled_start_of_the_log_is_in_a_pass_and_others_come_between() -> None:
    passes = passes_of([163.0, 100.0, 103.0, 999.0], 0.0, 200.0, 30.0)
    assert [(one.began_s, one.ended_s) for one in passes] == [
        (10, 10), (40, 40), (70, 70), (100, 103), (131.5, 131.5), (163, 163), (193, 193), (223, 223)
    ]  # fmt: skip
    assert [one.began_s for one in passes_of([], 0.0, 60.0, 30.0)] == [0, 30, 60]


# The controller's own loop beside played jobs.

BLOCKED = PlayedJob(T0, math.inf, T0 + LENGTH_S, 99, partition="p")  # waits at the head


@cases(
    "rows, jobs, started, used_s",
    ahead_of_the_pass_that_serves_a_job=(
        [("a", 0, 120), ("b", 0, 300)],
        *([BLOCKED, job(120, [0], eligible=100)], IN_TIME, 300),
    ),
    but_not_ahead_of_one_that_starts_as_it_comes=(
        [("a", 0, 125), ("b", 0, 125)],
        *([job(125, [0, 1], backfilled=False)], Started(PREEMPTION_S, 0, True), 0),
    ),
)
def test_trainers_leave(
    planner: Planner, rows: list[Hole], jobs: list[PlayedJob], started: Started, used_s: float
) -> None:
    ordinary = played(rows, *jobs)
    span_s = (T0, T0 + LENGTH_S)
    outcome = run_live(ordinary, span_s, [trainer(submit_s=T0)], 1, 30.0, planner)
    assert ordinary.close(T0 + LENGTH_S) == [started]
    assert outcome.used_node_hours * 3600 > used_s


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_whatever_the_log_all_jobs_start_and_no_node_has_two_users(
    planner: Planner, data: st.DataObject
) -> None:
    rows, jobs = [("d", 0.0, 300.0)], []
    for number, node in enumerate("abc"):
        at = 0
        for _ in range(data.draw(st.integers(1, 3))):
            begin = at + data.draw(st.integers(1, 40))
            at = begin + data.draw(st.integers(1, 40))
            rows.append((node, float(begin), float(at)))
            backfilled, waited = data.draw(st.booleans()), data.draw(st.integers(0, 100))
            jobs.append(job(float(at), [number], max(0.0, at - waited), backfilled))
    ordinary = played(rows, *jobs, kinds="pppq")
    # That an element starts only on a node that is nobody's, the cluster checks itself.
    run_live(ordinary, (T0, T0 + 600), [trainer(submit_s=T0)], 1, 30.0, planner)
    started = ordinary.close(T0 + 600)
    assert len(started) == len(jobs)
    # At most a pass for each job that backfill starts, and one for each that waits for it.
    assert all(0 <= one.late_s <= 31 * len(jobs) for one in started)
