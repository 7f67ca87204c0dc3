"""The simulated slurmctld, read and changed through the gateway that the daemon uses."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from bftrainer_slurm.model import Element, ElementId, ElementState, TimeLimit
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.spec import TrainerRecord
from scripts.scale_bench.requests import GROW, LOOK, Requests, SimulatedRunner
from scripts.scale_bench.slurmctld import Slurmctld

NODES = frozenset(f"n{number:05}" for number in range(1, 11))
LIMIT = TimeLimit(60, 10)


class Cluster:
    """Ten nodes, one trainer of eight elements, and a clock that is set."""

    def __init__(self) -> None:
        self.now_s = 1e9
        self.slurmctld = Slurmctld(10, lambda: self.now_s, random.Random(0))
        self.slurmctld.submit_trainer("root", "train", TrainerRecord(1, 8))
        self.requests = Requests(lambda: self.now_s)
        runner = SimulatedRunner(slurmctld=self.slurmctld, requests=self.requests)
        self.gateway = LookGateway(LOOK, runner, GROW)

    def after(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.5
            self.slurmctld.advance()

    def elements(self) -> tuple[Element, ...]:
        [trainer] = self.gateway.queue().trainers
        return trainer.elements

    def states(self) -> list[ElementState]:
        return [element.state for element in self.elements()]

    def grow(self, count: int) -> tuple[ElementId, ...]:
        held = [one.id for one in self.elements() if one.state is ElementState.HELD][:count]
        onto = frozenset(sorted(NODES)[:count])
        self.gateway.grow(held, onto, NODES - onto, LIMIT, excluded=frozenset())
        self.after(3)
        return tuple(held)

    def reclaim(self) -> None:
        nodes = [job.nodes[0] for job in self.slurmctld.elements("RUNNING")]
        job = self.slurmctld.submit_ordinary(len(nodes))
        self.slurmctld.start_ordinary(job, nodes)
        self.after(3)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_elements_that_never_ran_are_one_record(cluster: Cluster) -> None:
    assert cluster.states() == 8 * [ElementState.HELD]
    assert cluster.slurmctld.jobs_text(0).count("\n") == 2


def test_elements_that_were_let_go_start_on_the_nodes_they_may(cluster: Cluster) -> None:
    cluster.grow(3)
    running = [one for one in cluster.elements() if one.state is ElementState.RUNNING]
    assert {one.node for one in running} == set(sorted(NODES)[:3])
    assert cluster.slurmctld.jobs_text(0).count("\n") == 5


def test_elements_that_are_shrunk_are_held_and_keep_their_records(cluster: Cluster) -> None:
    cluster.gateway.shrink(cluster.grow(2))
    cluster.after(3)
    assert cluster.states() == 8 * [ElementState.HELD]
    assert cluster.slurmctld.jobs_text(0).count("\n") == 4
    assert len(cluster.slurmctld.idle) == 10


def test_reclaimed_elements_wait_for_their_begin_time(cluster: Cluster) -> None:
    cluster.grow(2)
    cluster.reclaim()
    assert cluster.states().count(ElementState.DELAYED) == 2
    assert len(cluster.gateway.queue().ordinary_nodes) == 2


def test_reclaimed_elements_start_again_by_themselves(cluster: Cluster) -> None:
    cluster.grow(2)
    cluster.reclaim()
    cluster.slurmctld.end_ordinary(cluster.slurmctld.ordinary("RUNNING"))
    cluster.after(130)
    assert cluster.slurmctld.started_alone == 2


def test_reclaimed_elements_that_are_held_stay_so(cluster: Cluster) -> None:
    elements = cluster.grow(2)
    cluster.reclaim()
    cluster.gateway.hold(elements)
    cluster.after(130)
    assert cluster.slurmctld.started_alone == 0
    assert cluster.states() == 8 * [ElementState.HELD]


def test_what_cannot_be_done_is_refused_by_name(cluster: Cluster) -> None:
    [running] = cluster.grow(1)
    waiting = ElementId(running.array, running.task + 1)
    with pytest.raises(RefusedError) as refused:
        cluster.gateway.hold([running, waiting])
    assert refused.value.elements == (running,)


def test_nothing_is_read_where_nothing_has_changed(cluster: Cluster) -> None:
    cluster.after(2)
    cluster.elements()
    read = cluster.requests.read_bytes
    assert read > 0
    cluster.after(2)
    cluster.elements()
    assert cluster.requests.read_bytes == read


def test_an_action_deals_with_the_change_that_caused_it(cluster: Cluster) -> None:
    elements = cluster.grow(2)
    cluster.reclaim()
    cluster.gateway.hold(elements[:1])
    [change] = cluster.slurmctld.changes.all
    assert change.took_s is None
    cluster.after(4)
    cluster.gateway.hold(elements[1:])
    assert change.took_s == pytest.approx(7.0)


@dataclass
class Clock:
    now_s: float = 1e9

    def __call__(self) -> float:
        return self.now_s


def test_requests_beyond_the_rate_limit_are_counted() -> None:
    clock = Clock()
    requests = Requests(clock)
    for _ in range(31):
        requests.count(1, moves=True)
    assert requests.limited == 1
    clock.now_s += 1.0
    for _ in range(3):
        requests.count(1, moves=True)
    assert requests.limited == 2
    assert len(requests.rpcs_s) == 34
