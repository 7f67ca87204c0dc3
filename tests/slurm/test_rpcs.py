"""What each method costs slurmctld, by sdiag: the table of docs/internals/rpcs.md."""

from __future__ import annotations

import time
from functools import partial

import pytest

from bftrainer_slurm.model import ElementId, ElementState, TimeLimit
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.spec import format_comment
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import NODES, Bench

pytestmark = [pytest.mark.slurm, pytest.mark.newest]
LIMIT = TimeLimit(minutes=30, least=10)


def test_a_look_at_the_queue(bench: Bench) -> None:
    expected = {"REQUEST_JOB_INFO": 1}
    if bench.gateway.name == "commands":
        expected["REQUEST_PARTITION_INFO"] = 1  # squeue always asks, to sort
    bench.submit()
    bench.gateway.queue()  # from 26.05 on squeue is asked more about a new job
    assert bench.asked(bench.gateway.queue) == expected


def test_a_look_at_the_nodes(bench: Bench) -> None:
    asked = bench.asked(bench.gateway.nodes)
    assert asked == {"REQUEST_NODE_INFO": 1, "REQUEST_PARTITION_INFO": 1}


def test_a_look_at_the_reservations(bench: Bench) -> None:
    assert bench.asked(bench.gateway.reservations) == {"REQUEST_RESERVATION_INFO": 1}


def test_a_look_at_the_configuration(bench: Bench) -> None:
    asked = bench.asked(lambda: bench.gateway.configuration("bftrainer"))
    assert asked == {
        "REQUEST_BUILD_INFO": 1,
        "REQUEST_PARTITION_INFO": 1,
        "REQUEST_PING": 1,  # scontrol says of slurmctld whether it is up, too
    }


def test_the_life_of_two_elements(bench: Bench) -> None:
    array = bench.submit()
    two = [ElementId(array, 0), ElementId(array, 1)]
    one_update = {"REQUEST_UPDATE_JOB": 1}
    nodes = frozenset({"n1", "n2"})
    ask = partial(bench.gateway.grow, two, nodes, NODES - nodes, LIMIT, excluded=frozenset())
    assert bench.asked(ask) == one_update
    wait_until(lambda: bench.state(array, 0) is bench.state(array, 1) is ElementState.RUNNING)
    assert bench.asked(lambda: bench.gateway.end_at(two, time.time() + 600)) == one_update
    assert bench.asked(lambda: bench.gateway.tell(two[1], "a word")) == {"REQUEST_JOB_NOTIFY": 1}
    record = bench.trainer(array).record
    assert bench.asked(lambda: bench.gateway.label(two, format_comment(record))) == one_update
    assert bench.asked(lambda: bench.gateway.shrink(two)) == {"REQUEST_JOB_REQUEUE": 1}
    wait_until(lambda: bench.state(array, 0) is bench.state(array, 1) is ElementState.HELD)
    assert bench.asked(lambda: bench.gateway.hold(two)) == one_update
    assert bench.asked(lambda: bench.gateway.trim(two)) == {"REQUEST_KILL_JOB": 1}
    assert bench.asked(lambda: bench.gateway.cancel(array)) == {"REQUEST_KILL_JOB": 1}


def test_growing_without_our_program_takes_more(bench: Bench) -> None:
    plain = CommandGateway(SlurmRunner(environment=bench.lab.env))
    array = bench.submit()
    elements = [ElementId(array, 0), ElementId(array, 2)]
    nodes = frozenset({"n1", "n2"})
    ask = partial(plain.grow, elements, nodes, NODES - nodes, LIMIT, excluded=frozenset())
    assert bench.asked(ask) == {"REQUEST_UPDATE_JOB": 2}
    wait_until(lambda: bench.state(array, 0) is bench.state(array, 2) is ElementState.RUNNING)
    assert {bench.element(array, task).node for task in (0, 2)} == nodes
