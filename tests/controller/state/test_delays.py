"""Which ordinary jobs started later because of elements, and how much later."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.cluster import ClusterState
from bftrainer_slurm.controller.state.delays import Delays
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import Began, Ended, Event
from bftrainer_slurm.controller.state.statistics import Delay, summary
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementId,
    ElementState,
    OrdinaryRun,
    Part,
    Queue,
    WaitingJob,
)
from tests.controller.worlds import ARRAY, NOW_S, cases, element, node, snapshot, view

BACKFILL_S = 30.0
ELEMENT = ElementId(ARRAY, 0)
OTHER = 8  # a job that waits besides


def gone(node: str, how: str = "reclaimed") -> Ended:
    return Ended(ELEMENT, node, NOW_S, how, took_s=2.0)


def queue(*runs: OrdinaryRun, waits: bool = True) -> Queue:
    nodes = frozenset(node for run in runs for node in run.nodes)
    waiting = (WaitingJob(OTHER, "main", 2),) if waits else ()
    return Queue((), waiting, nodes, ordinary_runs=runs)


def run(*nodes: str, after_s: float, job_id: int = 7, submit_s: float = 0.0) -> OrdinaryRun:
    return OrdinaryRun(nodes, NOW_S + after_s, submit_s, job_id, job_id)


Look = tuple[list[Event], Queue, float]  # what happened, the queue, and so long after NOW_S
GONE: Look = ([gone("n1")], queue(), 0.0)
UNSEEN: Look = ([gone("n1")], queue(waits=False), 0.0)


def after(*looks: Look) -> tuple[Set[str], list[Delay]]:
    """The nodes that are left to jobs, and which jobs were late, after these looks."""
    felt = Delays()
    late, before = [], set[tuple[int, float]]()
    for events, seen, at_s in looks:
        runs = {(run.job_id, run.start_s) for run in seen.ordinary_runs}
        of = Snapshot(NOW_S, queue=seen, configuration=Configuration(backfill_s=BACKFILL_S))
        late += felt.look(events, of, (), runs - before, NOW_S + at_s)
        before = runs
    return felt.nodes, late


@cases(
    "looks, late",
    from_when_its_elements_are_told_to_go_until_it_starts=(
        [([gone("n1"), gone("n2")], queue(), 0.0),
         ([], queue(run("n1", "n2", "n3", after_s=29.0)), 30.0)],
        [Delay(NOW_S + 29, elements=2, delay_s=31.0)],
    ),
    once_where_it_starts_between_two_looks=(
        [([gone("n1")], queue(run("n1", after_s=0.0), waits=False), 1.0),
         ([], queue(run("n1", after_s=0.0), waits=False), 2.0)],
        [Delay(NOW_S, elements=1, delay_s=2.0)],
    ),
    not_for_nodes_that_the_controller_gave_up_itself=(
        [([gone("n1", "shrank")], queue(run("n1", after_s=1.0)), 0.0)], []
    ),
    not_where_nobody_waited_as_the_element_ended=(
        [UNSEEN, ([], queue(run("n1", after_s=20.0)), 21.0)], []
    ),
    not_for_a_node_that_elements_have_had_again=(
        [GONE, ([Began(ELEMENT, "n1", NOW_S + 5)], queue(), 5.0),
         ([], queue(run("n1", after_s=20.0)), 21.0)], []
    ),
    not_several_passes_later_when_it_has_its_node_by_other_means=(
        [GONE, ([], queue(), 80.0), ([], queue(run("n1", after_s=99.0)), 100.0)], []
    ),
    not_if_it_ran_there_before=([([gone("n1")], queue(run("n1", after_s=-60.0)), 0.0)], []),
    also_beside_other_jobs_that_ran_there_before=(
        [([gone("n1")], queue(run("n1", after_s=-60.0, job_id=6)), 0.0),
         ([], queue(run("n1", after_s=-60.0, job_id=6), run("n1", after_s=29.0)), 30.0)],
        [Delay(NOW_S + 29, elements=1, delay_s=31.0)],
    ),
    also_beside_elements_that_others_have_of_the_node=(
        [GONE, ([Began(ElementId(13, 0), "n1", NOW_S + 5, gpus=2)], queue(), 5.0),
         ([gone("n1", "shrank")], queue(), 6.0),
         ([], queue(run("n1", after_s=20.0)), 21.0)],
        [Delay(NOW_S + 20, elements=1, delay_s=22.0)],
    ),
    with_all_elements_of_a_node=(
        [([gone("n1"), gone("n1")], queue(run("n1", after_s=0.0)), 1.0)],
        [Delay(NOW_S, elements=2, delay_s=2.0)],
    ),
    not_if_it_was_submitted_later=(
        [GONE, ([], queue(run("n1", after_s=9.0, submit_s=NOW_S + 8)), 10.0)], []
    ),
)  # fmt: skip
def test_a_job_waits_for_elements(looks: list[Look], late: list[Delay]) -> None:
    assert after(*looks)[1] == late


@cases(
    "looks, nodes",
    from_when_it_was_taken=([([gone("n1"), gone("n2")], queue(), 0.0)], {"n1", "n2"}),
    until_a_job_starts_there=(
        [([gone("n1"), gone("n2")], queue(), 0.0), ([], queue(run("n1", after_s=29.0)), 30.0)],
        {"n2"},
    ),
    not_where_nobody_has_come_for_it_in_some_passes=([GONE, ([], queue(), 80.0)], set()),
    for_a_moment_of_one_that_nobody_has_seen_wait=([UNSEEN], {"n1"}),
    but_no_longer=([UNSEEN, ([], queue(waits=False), 10.0)], set()),
    not_where_one_has_started_there_already=(
        [([gone("n1")], queue(run("n1", after_s=0.0)), 0.0)], set()
    ),
    nor_where_none_waits_any_more=(
        [([gone("n1")], queue(run("n1", after_s=0.0), waits=False), 0.0)], set()
    ),
    also_beside_jobs_that_have_run_there_for_longer=(
        [([gone("n1")], queue(run("n1", after_s=-60.0)), 0.0)], {"n1"}
    ),
)  # fmt: skip
def test_a_node_is_a_jobs(looks: list[Look], nodes: set[str]) -> None:
    assert after(*looks)[0] == nodes


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
    last: BackfillPass | None = None,
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
        configuration=Configuration(backfill_s=BACKFILL_S),
        last_pass=last or BackfillPass(NOW_S + began_s, active=False),
    )


def delays_of(
    *looks: Snapshot, said: ElementState = ElementState.RUNNING, elements: bool = True
) -> list[Delay]:
    felt, views, late = Delays(), list[TrainerView](), list[Delay]()
    views = [view(element(0, said, "n1", gpus=2))] if elements else []
    for look in looks:
        started = {(one.job_id, one.start_s) for one in look.queue.ordinary_runs}
        late += felt.look((), look, views, started, look.time_s)
    return late


RUNS = run("n1", after_s=30.0)
LATE = [Delay(NOW_S + 30, elements=0, delay_s=30.0)]


def test_a_job_that_a_pass_would_have_started_but_for_elements_is_late() -> None:
    looks = seen(-1, small(), began_s=-30), seen(2, small(), began_s=0)
    starts = seen(31, began_s=30, runs=(RUNS,))
    assert delays_of(*looks, starts) == LATE
    of_array = seen(31, began_s=30, runs=(replace(RUNS, job_id=9),))
    assert delays_of(*looks, of_array) == LATE


def test_what_a_pass_could_not_start_anyway_is_not_late() -> None:
    starts = seen(31, began_s=30, runs=(RUNS,))
    others: dict[str, Any] = {"ordinary": 7, "elements": 1}
    beside: dict[str, Any] = {"ordinary": 2, "elements": 2}
    before, after = seen(-1, small(), began_s=-30), seen(2, small(), began_s=0)
    for why, looks in {
        "ordinary jobs had too much": (seen(-1, small(), began_s=-30, **others), after),
        "another job was sooner": (before, seen(2, small(), began_s=0, **others)),
        "it came later": (seen(-1, small(OTHER), began_s=-30), after),
        "it waited for something else": (seen(-1, small(for_nodes=False), began_s=-30), after),
        "there was room beside elements": (seen(-1, small(), began_s=-30, **beside), after),
        "it started in the pass": (before, seen(2, small(OTHER), began_s=0)),
        "the pass has not come to it": (
            before,
            seen(2, small(), began_s=0, last=BackfillPass(NOW_S, False, tried=500, left=1)),
        ),
        "no pass came": (before, seen(2, small(), began_s=-30)),
    }.items():
        assert delays_of(*looks, starts) == [], why
    assert delays_of(before, after, starts, elements=False) == []
    first = small(6, priority=9, expected_start_s=NOW_S + 30, expected_nodes=("n1",))
    claimed = seen(-1, small(), first, began_s=-30)
    assert delays_of(claimed, after, starts) == [], "a larger job was planned there"


def test_slurm_starts_nothing_on_a_node_where_an_element_is_ending() -> None:
    beside: dict[str, Any] = {"ordinary": 2, "elements": 2}
    looks = seen(-1, small(), began_s=-30, **beside), seen(2, small(), began_s=0, **beside)
    starts = seen(31, began_s=30, runs=(RUNS,))
    assert delays_of(*looks, starts, said=ElementState.ENDING) == LATE


def test_the_summary_says_how_much_later_and_who_missed_a_pass() -> None:
    delays = (0.0, 1.0, 31.0)
    assert summary(Delay(NOW_S, 2, delay_s) for delay_s in delays) == {
        "jobs": 3,
        "elements": 6,
        "late_jobs": 1,
        "delay_median_s": 1.0,
        "delay_max_s": 31.0,
        "delay_sum_s": 32.0,
    }
    assert summary([])["delay_median_s"] is None


def test_a_controller_that_has_just_started_knows_what_the_one_before_saw(tmp_path: Path) -> None:
    before = History(tmp_path / "history.sqlite")
    seen = [Delay(NOW_S + after_s, 1, 0.5) for after_s in (0.0, 100.0)]
    before.add_delays(seen)
    before.close()
    history = History(tmp_path / "history.sqlite")
    assert history.delays(NOW_S) == seen
    assert history.delays(NOW_S + 50) == seen[1:]
    history.add_delays([Delay(NOW_S + 200, 1, 0.5)])
    assert len(history.delays(NOW_S)) == 3


def test_jobs_that_start_are_counted_once_and_those_of_before_the_first_look_never() -> None:
    history, felt = History(":memory:"), list[int]()
    cluster = ClusterState(history)
    for one in ({(1, 5.0)}, {(1, 5.0), (2, 6.0)}, {(2, 6.0)}, {(2, 9.0), (3, 8.0)}):
        queue = Queue((), (), frozenset(), ordinary_starts=frozenset(one))
        cluster.look(Snapshot(NOW_S, queue=queue), (), (), NOW_S)
        felt.append(history.ordinary(0.0))
    assert felt == [0, 1, 1, 3], "a job that is requeued starts again"


def test_the_next_jobs_ask_for_what_the_last_ones_had_one_of_each_size() -> None:
    cluster = ClusterState(History(":memory:"))
    sizes = [1] * 20 + [4] * 18 + [0] * 9 + [2]  # of these, one in 48 is too few
    runs = tuple(
        OrdinaryRun(
            ("n1",), NOW_S, 0.0, number, number, WaitingJob(number, "main", 1, gpus=gpus, cpus=1)
        )
        for number, gpus in enumerate(sizes)
    )
    large = OrdinaryRun(("n2", "n3"), NOW_S, 0.0, 99, 99, WaitingJob(99, "main", 2, gpus=8))
    whole = OrdinaryRun(("n4",), NOW_S, 0.0, 98, 98, WaitingJob(98, "main", 1))
    starts = frozenset((run.job_id, run.start_s) for run in (*runs, large, whole))
    queue = Queue((), (), frozenset(), ordinary_runs=(*runs, large, whole), ordinary_starts=starts)
    for _ in range(2):
        cluster.look(Snapshot(NOW_S, queue=queue), (), (), NOW_S)
        assert [job.gpus for job in cluster.next_jobs] == [1, 4]
