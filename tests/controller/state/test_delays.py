"""Which ordinary jobs started later because of elements, and how much later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.delays import Delays
from bftrainer_slurm.controller.state.phases import Began, Ended, Event
from bftrainer_slurm.controller.state.statistics import Delay, summary
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementId,
    OrdinaryRun,
    Part,
    Queue,
    WaitingJob,
)
from tests.controller.worlds import ARRAY, NOW_S, cases, element, named, node, snapshot, view

CONFIGURATION = Configuration(backfill_s=30.0)
ELEMENT = ElementId(ARRAY, 0)
OTHER = 8  # a job that waits besides


def gone(node: str, how: str = "reclaimed") -> Ended:
    return Ended(ELEMENT, node, NOW_S, how, took_s=2.0)


def run(*nodes: str, after_s: float, job_id: int = 7, submit_s: float = 0.0) -> OrdinaryRun:
    return OrdinaryRun(nodes, NOW_S + after_s, submit_s, job_id, job_id)


Look = tuple[Sequence[Event], Queue, float]  # what happened, the queue, and so long after NOW_S


def look(at_s: float, *runs: OrdinaryRun, events: Sequence[Event] = (), waits: bool = True) -> Look:
    nodes = frozenset(node for run in runs for node in run.nodes)
    waiting = (WaitingJob(OTHER, "main", 2),) if waits else ()
    return events, Queue((), waiting, nodes, ordinary_runs=runs), at_s


GONE = look(0, events=[gone("n1")])
UNSEEN = look(0, events=[gone("n1")], waits=False)
BOTH_GONE = look(0, events=[gone("n1"), gone("n2")])
HAS_IT = run("n1", after_s=20)
AT_ONCE = run("n1", after_s=0)
LONG = run("n1", after_s=-60, job_id=6)


@cases(
    "looks, late, nodes",
    from_when_elements_are_told_to_go_until_it_starts=(
        [BOTH_GONE, look(30, run("n1", "n2", "n3", after_s=29))], [Delay(NOW_S + 29, 2, 31)], ""
    ),
    until_then_the_nodes_are_its_own=([BOTH_GONE], [], "n1 n2"),
    those_that_it_does_not_get_are_others=(
        [BOTH_GONE, look(30, run("n1", after_s=29))], [Delay(NOW_S + 29, 1, 31)], "n2"
    ),
    once_where_it_starts_between_two_looks=(
        [look(1, AT_ONCE, events=[gone("n1")], waits=False), look(2, AT_ONCE, waits=False)],
        [Delay(NOW_S, 1, 2)], ""
    ),
    with_all_of_a_node=([look(1, AT_ONCE, events=[gone("n1")] * 2)], [Delay(NOW_S, 2, 2)], ""),
    not_for_nodes_that_the_controller_gave_up_itself=(
        [look(0, run("n1", after_s=1), events=[gone("n1", "shrank")])], [], ""
    ),
    nobody_waited_as_the_element_ended=([UNSEEN, look(21, HAS_IT)], [], ""),
    but_one_may_have_come_since_for_a_moment=([UNSEEN], [], "n1"),
    and_no_longer=([UNSEEN, look(10, waits=False)], [], ""),
    not_for_a_node_that_elements_have_had_again=(
        [GONE, look(5, events=[Began(ELEMENT, "n1", NOW_S + 5)]), look(21, HAS_IT)], [], ""
    ),
    also_beside_elements_that_others_have_of_the_node=(
        [GONE, look(5, events=[Began(ElementId(13, 0), "n1", NOW_S + 5, gpus=2)]),
         look(6, events=[gone("n1", "shrank")]), look(21, HAS_IT)],
        [Delay(NOW_S + 20, 1, 22)], ""
    ),
    not_where_it_has_not_come_for_it_in_some_passes=([GONE, look(80)], [], ""),
    and_has_it_by_other_means=([GONE, look(80), look(100, run("n1", after_s=99))], [], ""),
    not_if_it_ran_there_before=([look(0, LONG, events=[gone("n1")])], [], "n1"),
    but_another_that_starts_beside_it=(
        [look(0, LONG, events=[gone("n1")]), look(30, LONG, run("n1", after_s=29))],
        [Delay(NOW_S + 29, 1, 31)], ""
    ),
    not_if_it_came_later=([GONE, look(10, run("n1", after_s=9, submit_s=NOW_S + 8))], [], "n1"),
)  # fmt: skip
def test_a_job_waits_for_elements(looks: list[Look], late: list[Delay], nodes: str) -> None:
    felt, found, before = Delays(), list[Delay](), set[tuple[int, float]]()
    for events, queue, at_s in looks:
        runs = {(run.job_id, run.start_s) for run in queue.ordinary_runs}
        of = Snapshot(NOW_S, queue=queue, configuration=CONFIGURATION)
        found += felt.look(events, of, (), runs - before, NOW_S + at_s)
        before = runs
    assert (found, felt.nodes) == (late, named(nodes))


GPUS = 8


def small(job_id: int = 7, **more: Any) -> WaitingJob:
    """A job of two GPUs."""
    return WaitingJob(job_id, "main", 1, gpus=2, cpus=2, minutes=1, **more)


def seen(
    at_s: float,
    *jobs: WaitingJob,
    began_s: float,
    ordinary: int = 6,
    elements: int = 2,
    runs: tuple[OrdinaryRun, ...] = (),
    **last: int,
) -> Snapshot:
    """n1, of which ordinary jobs and elements have so many GPUs, and the last pass."""
    free = GPUS - ordinary
    part, left = Part(free, free, 9e9), Part(free - elements, free - elements, 9e9)
    of = snapshot(
        [node("n1", partition="main bftrainer")],
        waiting=jobs,
        ordinary_nodes=frozenset({"n1"}),
        ordinary_runs=runs,
    )
    return replace(
        of,
        time_s=NOW_S + at_s,
        shared={"n1": SharedNode(GPUS, part, left)},
        configuration=CONFIGURATION,
        last_pass=BackfillPass(NOW_S + began_s, active=False, **last),
    )


STARTS = run("n1", after_s=30.0)
BEFORE, AFTER = seen(-1, small(), began_s=-30), seen(2, small(), began_s=0)
THEN = seen(31, began_s=30, runs=(STARTS,))
FULLER: dict[str, Any] = {"ordinary": 7, "elements": 1}
ROOM: dict[str, Any] = {"ordinary": 2, "elements": 2}
FIRST = small(6, priority=9, expected_start_s=NOW_S + 30, expected_nodes=("n1",))
ROOMY = seen(-1, small(), began_s=-30, **ROOM), seen(2, small(), began_s=0, **ROOM)


def late_ones(*looks: Snapshot, said: str = "running n1") -> list[Delay]:
    felt, found, views = Delays(), list[Delay](), [view(element(0, said, gpus=2))]
    for one in looks:
        started = {(run.job_id, run.start_s) for run in one.queue.ordinary_runs}
        found += felt.look((), one, views, started, one.time_s)
    return found


def test_a_job_that_a_pass_would_have_started_but_for_elements_is_late() -> None:
    late = [Delay(NOW_S + 30, elements=0, delay_s=30.0)]
    of_array = seen(31, began_s=30, runs=(replace(STARTS, job_id=9),))
    assert late_ones(BEFORE, AFTER, THEN) == late_ones(BEFORE, AFTER, of_array) == late
    behind = replace(FIRST, priority=-1)
    assert late_ones(seen(-1, small(), behind, began_s=-30), AFTER, THEN) == late
    # Slurm starts nothing on a node where an element is ending.
    assert late_ones(*ROOMY, THEN, said="ending n1") == late
    assert late_ones(BEFORE, AFTER, THEN, said="held") == [], "there was none"


@cases(
    "before, after",
    where_there_was_room_beside_them=ROOMY,
    as_ordinary_jobs_had_too_much=(seen(-1, small(), began_s=-30, **FULLER), AFTER),
    as_another_was_sooner=(BEFORE, seen(2, small(), began_s=0, **FULLER)),
    as_it_came_later=(seen(-1, small(OTHER), began_s=-30), AFTER),
    as_it_waited_for_something_else=(seen(-1, small(for_nodes=False), began_s=-30), AFTER),
    as_it_started_in_the_pass=(BEFORE, seen(2, small(OTHER), began_s=0)),
    as_the_pass_did_not_come_to_it=(BEFORE, seen(2, small(), began_s=0, tried=500, left=1)),
    as_no_pass_came=(BEFORE, seen(2, small(), began_s=-30)),
    as_a_larger_one_was_planned_there=(seen(-1, small(), FIRST, began_s=-30), AFTER),
)
def test_it_is_not_late(before: Snapshot, after: Snapshot) -> None:
    assert late_ones(before, after, THEN) == []


def test_the_summary_says_how_much_later_and_who_missed_a_pass() -> None:
    assert summary(Delay(NOW_S, 2, delay_s) for delay_s in (0.0, 1.0, 31.0)) == {
        "jobs": 3,
        "elements": 6,
        "late_jobs": 1,
        "delay_median_s": 1.0,
        "delay_max_s": 31.0,
        "delay_sum_s": 32.0,
    }
    assert summary([])["delay_median_s"] is None
