"""Letting several elements start, by our program and by scontrol, on a real cluster."""

from __future__ import annotations

import os

import pytest

from bftrainer_slurm.model import ElementId, ElementState, NodeState, TimeLimit
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import NODES, Bench, ordinary

pytestmark = [pytest.mark.slurm, pytest.mark.newest]
pytestmark += [pytest.mark.parametrize("gateway", ["look", "scontrol"], indirect=True)]


def placed(bench: Bench, array: int) -> dict[int, str | None]:
    """Where which task runs."""
    elements = bench.trainer(array).elements
    return {one.id.task: one.node for one in elements if one.state is ElementState.RUNNING}


def wait_for(bench: Bench, array: int, tasks: set[int], *nodes: str) -> None:
    """Wait until just these tasks run, on these nodes, in whatever order."""
    wait_until(lambda: placed(bench, array).keys() == tasks)
    assert sorted(map(str, placed(bench, array).values())) == sorted(nodes)


def test_each_starts_on_a_node_of_its_own_whether_slurm_has_a_record_of_its_own_of_it_or_not(
    bench: Bench,
) -> None:
    array = bench.submit(8)
    bench.run_on(array, 2, "n1")
    bench.shrink(array, 2)
    bench.grow(array, (0, "n2"), (2, "n4"), (3, "n6"), (6, "n8"))
    wait_for(bench, array, {0, 2, 3, 6}, "n2", "n4", "n6", "n8")
    assert {bench.node(name).state for name in ("n2", "n8")} == {NodeState.BUSY}
    assert bench.state(array, 1) is ElementState.HELD


def test_just_reclaimed_ones_are_delayed_can_be_held_and_start_elsewhere_with_held_ones(
    bench: Bench,
) -> None:
    array = bench.submit(4)
    bench.run_on(array, 0, "n1")
    bench.run_on(array, 1, "n2")
    ordinary(bench, "--nodelist=n[1-2]", "--nodes=2")
    bench.wait_for(array, ElementState.DELAYED, 0, 1)
    bench.gateway.hold([ElementId(array, 0)])
    assert bench.state(array, 0) is ElementState.HELD
    bench.grow(array, (0, "n3"), (1, "n4"))
    wait_for(bench, array, {0, 1}, "n3", "n4")


def test_the_one_whose_node_a_job_has_taken_waits_for_it(bench: Bench) -> None:
    ordinary(bench, "--nodelist=n3")
    wait_until(lambda: bench.gateway.queue().ordinary_nodes == {"n3"})
    array = bench.submit(4)
    bench.grow(array, (0, "n2"), (1, "n3"))
    wait_until(lambda: list(placed(bench, array).values()) == ["n2"])
    (waiting,) = {0, 1} - placed(bench, array).keys()
    assert bench.state(array, waiting) is ElementState.PENDING
    bench.gateway.hold([ElementId(array, waiting)])
    assert bench.state(array, waiting) is ElementState.HELD
    bench.run_on(array, waiting, "n7")


def test_the_one_whose_owner_asked_for_a_node_starts_elsewhere(bench: Bench) -> None:
    array = bench.submit(4)
    bench.lab.run("scontrol", "update", f"JobId={array}_0", "ReqNodeList=n1", user="root")
    assert bench.element(array, 0).node == "n1"
    bench.grow(array, (0, "n2"), (1, "n3"))
    wait_for(bench, array, {0, 1}, "n2", "n3")


def test_those_that_cannot_are_named_and_the_others_start(bench: Bench) -> None:
    array = bench.submit(4)
    bench.run_on(array, 1, "n1")
    with pytest.raises(RefusedError) as refused:
        bench.grow(array, (0, "n2"), (1, "n3"), (9, "n4"))
    assert set(refused.value.elements) == {ElementId(array, 1), ElementId(array, 9)}
    wait_until(lambda: placed(bench, array).keys() == {0, 1})
    assert placed(bench, array)[1] == "n1"


def test_what_the_user_excluded_survives(bench: Bench) -> None:
    array = bench.submit(2, exclude="n[1-2]")
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    bench.grow(array, (0, "n5"), (1, "n6"))
    wait_for(bench, array, {0, 1}, "n5", "n6")
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    bench.shrink(array, 0, 1)
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    bench.lab.run("scontrol", "update", f"JobId={array}", "ExcNodeList=n3", user="root")
    assert bench.trainer(array).demands.excluded == {"n3"}


def test_nothing_is_excluded_where_all_nodes_are_meant(bench: Bench) -> None:
    array = bench.submit(8)
    bench.run_on(array, 0, "n3")
    bench.shrink(array, 0)
    bench.grow(array, *((task, f"n{task + 1}") for task in range(8)))
    wait_for(bench, array, {*range(8)}, *NODES)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for several users")
def test_an_ordinary_user_may_with_a_time_limit(bench: Bench, as_bob: SlurmRunner) -> None:
    array = bench.submit(4, user="bob", time="5")
    limit = TimeLimit(minutes=60, least=10)
    bench.grow(array, (0, "n2"), (1, "n4"), limit=limit, through=CommandGateway(as_bob))
    bench.wait_for(array, ElementState.RUNNING, 0, 1)
    # Where backfill starts it the least is all that it gets, before 26.05.
    limits = dict(line.split() for line in bench.lab.squeue(array, "%K %l"))
    assert {limits["0"], limits["1"]} <= {"10:00", "1:00:00"}
