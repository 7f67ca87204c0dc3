"""What each method does, and costs slurmctld, by sdiag: the table of docs/internals/rpcs.md."""

from __future__ import annotations

import time
from functools import partial

import pytest

from bftrainer_slurm.model import ElementId, ElementState, TimeLimit
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.spec import format_comment
from tests.slurm.conftest import NODES, Bench

pytestmark = [pytest.mark.slurm, pytest.mark.newest]
LIMIT = TimeLimit(minutes=30, least=10)


@pytest.mark.parametrize("what", ["queue", "nodes", "reservations", "configuration"])
def test_a_look(bench: Bench, what: str) -> None:
    partitions = {"REQUEST_PARTITION_INFO": 1}
    expected = {
        # squeue always asks for partitions, to sort
        "queue": {"REQUEST_JOB_INFO": 1} | (partitions if bench.gateway.name == "commands" else {}),
        "nodes": {"REQUEST_NODE_INFO": 1} | partitions,
        "reservations": {"REQUEST_RESERVATION_INFO": 1},
        # scontrol says of slurmctld whether it is up, too
        "configuration": {"REQUEST_BUILD_INFO": 1, "REQUEST_PING": 1} | partitions,
    }
    bench.submit()
    bench.gateway.queue()  # from 26.05 on squeue is asked more about a new job
    arguments = ("bftrainer",) if what == "configuration" else ()
    assert bench.asked(lambda: getattr(bench.gateway, what)(*arguments)) == expected[what]


def test_the_life_of_two_elements(bench: Bench) -> None:
    array = bench.submit()
    two = [ElementId(array, 0), ElementId(array, 1)]
    one_update = {"REQUEST_UPDATE_JOB": 1}
    shrunk = {"REQUEST_JOB_REQUEUE": 1}
    plain = CommandGateway(SlurmRunner(environment=bench.lab.env))  # without our program

    def ask(gateway: CommandGateway, *nodes: str) -> None:
        gateway.grow(two, frozenset(nodes), NODES - {*nodes}, LIMIT, excluded=frozenset())

    assert bench.asked(lambda: ask(plain, "n1", "n2")) == {"REQUEST_UPDATE_JOB": 2}
    bench.wait_for(array, ElementState.RUNNING, 0, 1)
    assert bench.asked(lambda: bench.gateway.shrink(two)) == shrunk
    bench.wait_for(array, ElementState.HELD, 0, 1)
    assert bench.asked(lambda: ask(bench.gateway, "n3", "n4")) == one_update
    bench.wait_for(array, ElementState.RUNNING, 0, 1)
    assert {bench.element(array, task).node for task in (0, 1)} == {"n3", "n4"}
    for hours in (10, 0.5):
        end_s = int(time.time() + 3600 * hours)
        assert bench.asked(partial(bench.gateway.end_at, two, end_s)) == one_update
        assert {bench.element(array, task).limit_end_s for task in (0, 1)} == {end_s}
    assert bench.asked(lambda: bench.gateway.tell(two[1], "a word")) == {"REQUEST_JOB_NOTIFY": 1}
    record = bench.trainer(array).record
    assert bench.asked(lambda: bench.gateway.label(two, format_comment(record))) == one_update
    assert bench.asked(lambda: bench.gateway.shrink(two)) == shrunk
    bench.wait_for(array, ElementState.HELD, 0, 1)
    assert bench.asked(lambda: bench.gateway.hold(two)) == one_update
    assert bench.asked(lambda: bench.gateway.trim(two)) == {"REQUEST_KILL_JOB": 1}
    assert bench.state(array, 0) is ElementState.CANCELLED
    assert bench.state(array, 3) is ElementState.HELD
    for _ in range(2):  # it is no error twice
        assert bench.asked(lambda: bench.gateway.cancel(array)) == {"REQUEST_KILL_JOB": 1}
        bench.wait_for(array, ElementState.CANCELLED, 0, 1, 2, 3)
