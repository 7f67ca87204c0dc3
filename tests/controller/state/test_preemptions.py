"""Which ordinary jobs started where Slurm first had to take elements, and how much later."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import Began, Ended
from bftrainer_slurm.controller.state.picture import ClusterState, Preemptions
from bftrainer_slurm.controller.state.statistics import Preemption, summary
from bftrainer_slurm.model import ElementId, OrdinaryRun, Queue, WaitingJob
from tests.controller.worlds import ARRAY, NOW_S

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


def test_a_job_waits_from_when_its_elements_are_told_to_go_until_it_starts() -> None:
    felt = Preemptions()
    assert felt.look([gone("n1"), gone("n2")], queue(), BACKFILL_S, NOW_S) == []
    found = felt.look([], queue(run("n1", "n2", "n3", after_s=29.0)), BACKFILL_S, NOW_S + 30)
    assert found == [Preemption(NOW_S + 29, elements=2, delay_s=31.0)]


def test_a_node_is_the_jobs_from_when_it_was_taken_until_a_job_starts_there() -> None:
    felt = Preemptions()
    felt.look([gone("n1"), gone("n2")], queue(), BACKFILL_S, NOW_S)
    assert felt.nodes == {"n1", "n2"}
    felt.look([], queue(run("n1", after_s=29.0)), BACKFILL_S, NOW_S + 30)
    assert felt.nodes == {"n2"}


def test_a_node_that_nobody_has_come_for_in_some_passes_is_nobodys() -> None:
    felt = Preemptions()
    felt.look([gone("n1")], queue(), BACKFILL_S, NOW_S)
    felt.look([], queue(), BACKFILL_S, NOW_S + 80)
    assert not felt.nodes


def test_a_node_is_left_for_a_moment_to_a_job_that_nobody_has_seen_wait() -> None:
    felt = Preemptions()
    felt.look([gone("n1")], queue(waits=False), BACKFILL_S, NOW_S)
    assert felt.nodes == {"n1"}
    felt.look([], queue(waits=False), BACKFILL_S, NOW_S + 10)
    assert not felt.nodes


@pytest.mark.parametrize("waits", [True, False])
def test_a_node_is_left_to_nobody_once_a_job_has_started_there(waits: bool) -> None:
    felt = Preemptions()
    felt.look([gone("n1")], queue(run("n1", after_s=0.0), waits=waits), BACKFILL_S, NOW_S)
    assert not felt.nodes


def test_a_job_that_starts_between_two_looks_is_counted_once() -> None:
    felt = Preemptions()
    runs = queue(run("n1", after_s=0.0), waits=False)
    assert len(felt.look([gone("n1")], runs, BACKFILL_S, NOW_S + 1)) == 1
    assert felt.look([], runs, BACKFILL_S, NOW_S + 2) == []


def test_nodes_that_the_controller_gave_up_itself_were_not_preempted() -> None:
    felt = Preemptions()
    after = queue(run("n1", after_s=1.0))
    assert felt.look([gone("n1", "shrank")], after, BACKFILL_S, NOW_S) == []


def test_an_element_that_ends_while_nobody_waits_has_not_ended_for_a_job() -> None:
    felt = Preemptions()
    felt.look([gone("n1")], queue(waits=False), BACKFILL_S, NOW_S)
    assert felt.look([], queue(run("n1", after_s=20.0)), BACKFILL_S, NOW_S + 21) == []


def test_a_node_that_elements_have_again_was_taken_for_nobody() -> None:
    felt = Preemptions()
    felt.look([gone("n1")], queue(), BACKFILL_S, NOW_S)
    felt.look([Began(ELEMENT, "n1", NOW_S + 5)], queue(), BACKFILL_S, NOW_S + 5)
    assert felt.look([], queue(run("n1", after_s=20.0)), BACKFILL_S, NOW_S + 21) == []


def test_a_job_that_comes_after_several_passes_has_its_node_by_other_means() -> None:
    felt = Preemptions()
    felt.look([gone("n1")], queue(), BACKFILL_S, NOW_S)
    felt.look([], queue(), BACKFILL_S, NOW_S + 80)
    assert felt.look([], queue(run("n1", after_s=99.0)), BACKFILL_S, NOW_S + 100) == []


def test_a_job_that_ran_there_before_is_not_the_one() -> None:
    found = Preemptions().look([gone("n1")], queue(run("n1", after_s=-60.0)), BACKFILL_S, NOW_S)
    assert found == []


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
