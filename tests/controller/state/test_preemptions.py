"""Which ordinary jobs started where Slurm first had to take elements, and how much later."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState, Preemptions
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import Began, Ended, Event
from bftrainer_slurm.controller.state.statistics import Preemption, summary
from bftrainer_slurm.model import ElementId, OrdinaryRun, Queue, WaitingJob
from tests.controller.worlds import ARRAY, NOW_S, cases

WAITS = WaitingJob(7, "main", 2)
BACKFILL_S = 30.0
ELEMENT = ElementId(ARRAY, 0)


def gone(node: str, how: str = "reclaimed") -> Ended:
    return Ended(ELEMENT, node, NOW_S, how, took_s=2.0)


def queue(*runs: OrdinaryRun, waits: bool = True) -> Queue:
    nodes = frozenset(node for run in runs for node in run.nodes)
    return Queue((), (WAITS,) if waits else (), nodes, ordinary_runs=runs)


def run(*nodes: str, after_s: float) -> OrdinaryRun:
    return OrdinaryRun(nodes, NOW_S + after_s)


Look = tuple[list[Event], Queue, float]  # what happened, the queue, and so long after NOW_S
GONE: Look = ([gone("n1")], queue(), 0.0)
UNSEEN: Look = ([gone("n1")], queue(waits=False), 0.0)


def after(*looks: Look) -> tuple[Set[str], list[Preemption]]:
    """The nodes that are left to jobs, and which jobs were late, after these looks."""
    felt = Preemptions()
    late = []
    for events, seen, at_s in looks:
        late += felt.look(events, seen, BACKFILL_S, NOW_S + at_s)
    return felt.nodes, late


@cases(
    "looks, late",
    from_when_its_elements_are_told_to_go_until_it_starts=(
        [([gone("n1"), gone("n2")], queue(), 0.0),
         ([], queue(run("n1", "n2", "n3", after_s=29.0)), 30.0)],
        [Preemption(NOW_S + 29, elements=2, delay_s=31.0)],
    ),
    once_where_it_starts_between_two_looks=(
        [([gone("n1")], queue(run("n1", after_s=0.0), waits=False), 1.0),
         ([], queue(run("n1", after_s=0.0), waits=False), 2.0)],
        [Preemption(NOW_S, elements=1, delay_s=2.0)],
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
)  # fmt: skip
def test_a_job_waits_for_elements(looks: list[Look], late: list[Preemption]) -> None:
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
)  # fmt: skip
def test_a_node_is_a_jobs(looks: list[Look], nodes: set[str]) -> None:
    assert after(*looks)[0] == nodes


def test_the_summary_says_how_much_later_and_who_missed_a_pass() -> None:
    delays = (0.0, 1.0, 31.0)
    assert summary(Preemption(NOW_S, 2, delay_s) for delay_s in delays) == {
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
    seen = [Preemption(NOW_S + after_s, 1, 0.5) for after_s in (0.0, 100.0)]
    before.add_preemptions(seen)
    before.close()
    history = History(tmp_path / "history.sqlite")
    assert history.preemptions(NOW_S) == seen
    assert history.preemptions(NOW_S + 50) == seen[1:]
    history.add_preemptions([Preemption(NOW_S + 200, 1, 0.5)])
    assert len(history.preemptions(NOW_S)) == 3


def test_jobs_that_start_are_counted_once_and_those_of_before_the_first_look_never() -> None:
    history, felt = History(":memory:"), list[int]()
    cluster = ClusterState(history, Settings())
    for one in ({(1, 5.0)}, {(1, 5.0), (2, 6.0)}, {(2, 6.0)}, {(2, 9.0), (3, 8.0)}):
        queue = Queue((), (), frozenset(), ordinary_starts=frozenset(one))
        cluster.look(Snapshot(NOW_S, queue=queue), (), (), NOW_S)
        felt.append(history.ordinary(0.0))
    assert felt == [0, 1, 1, 3], "a job that is requeued starts again"
