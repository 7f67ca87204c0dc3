"""Letting several elements start in one request, on a real cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer_slurm.model import ElementId, ElementState, TimeLimit
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.open import GROW
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import Bench, clear, ordinary

pytestmark = [pytest.mark.slurm, pytest.mark.newest]


@pytest.fixture(params=[GROW, "scontrol"])
def bench(request: pytest.FixtureRequest, lab: Lab, programs: Path) -> Bench:
    """The shared cluster, reached in each way to grow; afterwards nothing runs on it any more."""
    request.addfinalizer(lambda: clear(lab))
    runner = SlurmRunner(environment=lab.env)
    program = f"{programs}/{GROW}" if request.param == GROW else None
    return Bench(lab, CommandGateway(runner, program))


def running(bench: Bench, array: int) -> dict[int, str | None]:
    """Where which task runs."""
    elements = bench.trainer(array).elements
    return {one.id.task: one.node for one in elements if one.state is ElementState.RUNNING}


def test_each_starts_on_a_node_of_its_own(bench: Bench) -> None:
    array = bench.submit(8)
    bench.grow(array, (0, "n2"), (1, "n4"), (2, "n6"), (5, "n8"))
    wait_until(lambda: running(bench, array).keys() == {0, 1, 2, 5})
    assert sorted(map(str, running(bench, array).values())) == ["n2", "n4", "n6", "n8"]
    assert bench.state(array, 3) is ElementState.HELD


def test_those_with_a_record_of_their_own_start_with_those_without(bench: Bench) -> None:
    array = bench.submit(6)
    bench.run_on(array, 2, "n1")
    bench.gateway.shrink([ElementId(array, 2)])
    wait_until(lambda: bench.state(array, 2) is ElementState.HELD)
    bench.grow(array, (2, "n3"), (3, "n4"), (4, "n5"))
    wait_until(lambda: running(bench, array).keys() == {2, 3, 4})
    assert sorted(map(str, running(bench, array).values())) == ["n3", "n4", "n5"]


def test_just_reclaimed_ones_start_elsewhere_with_held_ones(bench: Bench) -> None:
    array = bench.submit(4)
    bench.run_on(array, 0, "n1")
    ordinary(bench, "--nodelist=n1")
    wait_until(lambda: bench.state(array, 0) is ElementState.DELAYED)
    bench.grow(array, (0, "n2"), (1, "n3"))
    wait_until(lambda: running(bench, array).keys() == {0, 1})
    assert sorted(map(str, running(bench, array).values())) == ["n2", "n3"]


def test_the_one_whose_node_a_job_has_taken_waits_for_it(bench: Bench) -> None:
    ordinary(bench, "--nodelist=n3")
    wait_until(lambda: bench.gateway.queue().ordinary_nodes == {"n3"})
    array = bench.submit(4)
    bench.grow(array, (0, "n2"), (1, "n3"))
    wait_until(lambda: list(running(bench, array).values()) == ["n2"])
    (waiting,) = {0, 1} - running(bench, array).keys()
    assert bench.state(array, waiting) is ElementState.PENDING
    bench.gateway.hold([ElementId(array, waiting)])
    assert bench.state(array, waiting) is ElementState.HELD
    bench.run_on(array, waiting, "n7")


def test_the_one_whose_owner_asked_for_a_node_starts_elsewhere(bench: Bench) -> None:
    array = bench.submit(4)
    bench.lab.run("scontrol", "update", f"JobId={array}_0", "ReqNodeList=n1", user="root")
    assert bench.element(array, 0).node == "n1"
    bench.grow(array, (0, "n2"), (1, "n3"))
    wait_until(lambda: running(bench, array).keys() == {0, 1})
    assert sorted(map(str, running(bench, array).values())) == ["n2", "n3"]


def test_those_that_cannot_are_named_and_the_others_start(bench: Bench) -> None:
    array = bench.submit(4)
    bench.run_on(array, 1, "n1")
    with pytest.raises(RefusedError) as refused:
        bench.grow(array, (0, "n2"), (1, "n3"), (9, "n4"))
    assert set(refused.value.elements) == {ElementId(array, 1), ElementId(array, 9)}
    wait_until(lambda: running(bench, array).keys() == {0, 1})
    assert running(bench, array)[1] == "n1"


def test_what_the_user_excluded_survives(bench: Bench) -> None:
    array = bench.submit(2, exclude="n[1-2]")
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    bench.grow(array, (0, "n5"), (1, "n6"))
    wait_until(lambda: running(bench, array).keys() == {0, 1})
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    bench.gateway.shrink([ElementId(array, 0), ElementId(array, 1)])
    wait_until(lambda: bench.state(array, 0) is bench.state(array, 1) is ElementState.HELD)
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    bench.lab.run("scontrol", "update", f"JobId={array}", "ExcNodeList=n3", user="root")
    assert bench.trainer(array).demands.excluded == {"n3"}


def test_nothing_is_excluded_where_all_nodes_are_meant(bench: Bench) -> None:
    array = bench.submit(8)
    bench.run_on(array, 0, "n3")
    bench.gateway.shrink([ElementId(array, 0)])
    wait_until(lambda: bench.state(array, 0) is ElementState.HELD)
    bench.grow(array, *((task, f"n{task + 1}") for task in range(8)))
    wait_until(lambda: len(running(bench, array)) == 8)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for several users")
def test_an_ordinary_user_may_with_a_time_limit(bench: Bench, as_bob: SlurmRunner) -> None:
    array = bench.submit(4, user="bob", time="5")
    limit = TimeLimit(minutes=60, least=10)
    bench.grow(array, (0, "n2"), (1, "n4"), limit=limit, through=CommandGateway(as_bob))
    wait_until(lambda: running(bench, array).keys() == {0, 1})
    # Where backfill starts it the least is all that it gets, before 26.05.
    limits = dict(line.split() for line in bench.lab.squeue(array, "%K %l"))
    assert {limits["0"], limits["1"]} <= {"10:00", "1:00:00"}
