"""How many nodes the jobs of the last day make worth keeping idle."""

from __future__ import annotations

from bftrainer_slurm.controller.state.arrivals import PREEMPTION_S, Arrivals
from bftrainer_slurm.model import OrdinaryRun
from tests.controller.worlds import NOW_S

HOUR_S = 3600.0
# One job an hour pays for one node from here on.
PAYS = HOUR_S / PREEMPTION_S + 1


def job(number: int, nodes: int = 1, waited_s: float = 0.0) -> OrdinaryRun:
    start_s = NOW_S + number
    names = tuple(f"n{number}-{one}" for one in range(nodes))
    return OrdinaryRun(names, start_s, start_s - waited_s)


def kept(worth: float, *jobs: OrdinaryRun, hours: float = 1.0) -> int:
    """How many nodes are kept so long after a controller has started, and seen these jobs come."""
    arrivals = Arrivals(NOW_S)
    arrivals.look((), NOW_S)
    arrivals.look(jobs, NOW_S + 60)
    now_s = NOW_S + hours * HOUR_S
    arrivals.look(jobs, now_s)
    return arrivals.worth_keeping(worth, now_s)


def test_a_node_is_kept_where_the_jobs_it_spares_are_worth_more() -> None:
    assert kept(PAYS, job(1)) == 1
    assert kept(PAYS - 2, job(1)) == 0


def test_jobs_that_come_rarely_pay_for_nothing() -> None:
    assert kept(PAYS, job(1), hours=2) == 0
    assert kept(PAYS, job(1), job(2), hours=2) == 1


def test_nodes_for_small_jobs_are_kept_where_those_for_large_ones_cost_too_much() -> None:
    small = [job(number) for number in range(1, 5)]
    assert kept(PAYS, *small, job(9, nodes=8)) == 1
    assert kept(8 * PAYS, *small, job(9, nodes=8)) == 8


def test_a_job_that_has_waited_is_not_the_main_schedulers() -> None:
    assert kept(PAYS, job(1, waited_s=30.0)) == 0


def test_a_job_counts_once_however_often_it_is_seen() -> None:
    arrivals = Arrivals(NOW_S)
    arrivals.look((), NOW_S)
    for second in range(10):
        arrivals.look((job(1, nodes=2),), NOW_S + second)
    assert arrivals.worth_keeping(PAYS, NOW_S + HOUR_S) == 0


def test_what_ran_already_as_the_controller_started_does_not_count() -> None:
    arrivals = Arrivals(NOW_S)
    arrivals.look((job(1),), NOW_S)
    assert arrivals.worth_keeping(PAYS, NOW_S + HOUR_S) == 0


def test_a_day_later_it_is_forgotten() -> None:
    assert kept(1000 * PAYS, job(1), hours=23) == 1
    assert kept(1000 * PAYS, job(1), hours=26) == 0
