"""What each method costs slurmctld, by sdiag: the table of docs/rpcs.md."""

from __future__ import annotations

import pytest

from bftrainer_slurm.model import ElementId, ElementState
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import Bench

pytestmark = pytest.mark.slurm


def test_a_look_at_the_queue(bench: Bench) -> None:
    expected = {"REQUEST_JOB_INFO": 1}
    if bench.gateway.name == "commands":
        expected["REQUEST_PARTITION_INFO"] = 1  # squeue always asks, to sort
    bench.submit()
    assert bench.asked(bench.gateway.queue) == expected
    assert sum(expected.values()) == bench.gateway.queue_rpcs


def test_a_look_at_the_nodes(bench: Bench) -> None:
    asked = bench.asked(bench.gateway.nodes)
    assert asked == {"REQUEST_NODE_INFO": 1, "REQUEST_PARTITION_INFO": 1}


def test_a_look_at_the_reservations(bench: Bench) -> None:
    assert bench.asked(bench.gateway.reservations) == {"REQUEST_RESERVATION_INFO": 1}


def test_the_life_of_two_elements(bench: Bench) -> None:
    array = bench.submit()
    two = [ElementId(array, 0), ElementId(array, 1)]
    one_update = {"REQUEST_UPDATE_JOB": 1}
    for element, node in zip(two, ("n1", "n2"), strict=True):
        assert bench.asked(lambda e=element, n=node: bench.gateway.grow(e, n)) == one_update
    wait_until(lambda: bench.state(array, 0) is bench.state(array, 1) is ElementState.RUNNING)
    assert bench.asked(lambda: bench.gateway.lengthen(two, 120)) == one_update
    assert bench.asked(lambda: bench.gateway.shrink(two)) == {"REQUEST_JOB_REQUEUE": 1}
    wait_until(lambda: bench.state(array, 0) is bench.state(array, 1) is ElementState.HELD)
    assert bench.asked(lambda: bench.gateway.hold(two)) == one_update
    assert bench.asked(lambda: bench.gateway.cancel(array)) == {"REQUEST_KILL_JOB": 1}


def test_growing_without_our_program_takes_more(bench: Bench) -> None:
    plain = CommandGateway(SlurmRunner(environment=bench.lab.env))
    array = bench.submit()
    expected = {"REQUEST_FED_INFO": 1, "REQUEST_JOB_INFO_SINGLE": 1, "REQUEST_UPDATE_JOB": 2}
    assert bench.asked(lambda: plain.grow(ElementId(array, 0), "n2", minutes=30)) == expected
    assert sum(expected.values()) == plain.grow_rpcs
    wait_until(lambda: bench.state(array, 0) is ElementState.RUNNING)
    assert bench.element(array, 0).node == "n2"
