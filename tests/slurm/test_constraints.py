"""What is foreseen of --constraint and --exclude, beside what Slurm then does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bftrainer_slurm.constraint import parse_constraint
from bftrainer_slurm.model import ElementState
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import Bench

pytestmark = [pytest.mark.slurm, pytest.mark.newest]

FEATURES = {"n1": "red", "n2": "red,big", "n3": "big,slow", "n4": "slow"}
CONSTRAINTS = (
    "red",
    "red&big",
    "red,big",
    "red|slow",
    "red|big&slow",  # from left to right: (red|big)&slow
    "big&slow|red",
    "red&big|slow",
    "slow|red&big",
)


@pytest.fixture(scope="module")
def features(lab: Lab) -> Iterator[None]:
    """Features that the nodes of the shared cluster have for a while."""

    def give(node: str, names: str) -> None:
        features = (f"AvailableFeatures={names}", f"ActiveFeatures={names}")
        lab.run("scontrol", "update", f"NodeName={node}", *features, user="root")

    for node, names in FEATURES.items():
        give(node, names)
    yield
    for node in FEATURES:
        give(node, "")


def started(bench: Bench, array: int) -> bool:
    """Wait until Slurm has started a released element, or says that it never will."""

    def refused() -> bool:
        return bench.element(array, 0).reason == "BadConstraints"

    # slurmctld looks at once, but for the look that it misses now and then: the next is in 60 s.
    wait_until(lambda: refused() or bench.state(array, 0) is ElementState.RUNNING)
    return not refused()


@pytest.mark.usefixtures("features")
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_constraint_is_read_as_slurm_reads_it(bench: Bench, constraint: str) -> None:
    arrays = {node: bench.submit(tasks=1, constraint=constraint) for node in FEATURES}
    foreseen = {}
    for node, array in arrays.items():
        (asked,) = bench.trainer(array).demands.constraints
        foreseen[node] = parse_constraint(asked).allows(bench.node(node).features)
        bench.grow(array, (0, node))
    assert foreseen == {node: started(bench, array) for node, array in arrays.items()}


def test_a_node_too_small_is_refused_at_once(bench: Bench) -> None:
    array = bench.submit(tasks=1, mem="100G")
    bench.grow(array, (0, "n1"))
    assert not started(bench, array)
    assert bench.state(array, 0) is ElementState.HELD


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for several users")
def test_its_owner_may_let_an_element_go_elsewhere_that_its_exclude_kept_from_a_node(
    bench: Bench, as_bob: SlurmRunner
) -> None:
    array = bench.submit(tasks=1, user="bob", exclude="n[1-2]")
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    for node, starts in (("n1", False), ("n3", True)):
        bench.grow(array, (0, node), through=CommandGateway(as_bob))
        assert started(bench, array) is starts
