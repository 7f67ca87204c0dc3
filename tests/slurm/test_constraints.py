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


def runs(bench: Bench, array: int, node: str, gateway: CommandGateway | None = None) -> bool:
    """Whether Slurm starts an element on a node; it says so if it never will."""
    bench.grow(array, (0, node), through=gateway)
    return started(bench, array)


def started(bench: Bench, array: int) -> bool:
    """Wait until Slurm has started a released element, or says that it never will."""

    def refused() -> bool:
        return bench.element(array, 0).reason == "BadConstraints"

    def answered() -> bool:
        return refused() or bench.state(array, 0) is ElementState.RUNNING

    # slurmctld looks at once, but for the look that it misses now and then: the next is in 60 s.
    wait_until(answered)
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


def test_an_excluded_node_is_none_for_it(bench: Bench) -> None:
    array = bench.submit(tasks=1, exclude="n[1-2]")
    assert bench.trainer(array).demands.excluded == {"n1", "n2"}
    assert runs(bench, array, "n1") is False
    assert runs(bench, array, "n3") is True


def test_a_node_too_small_is_refused_at_once(bench: Bench) -> None:
    array = bench.submit(tasks=1, mem="100G")
    assert runs(bench, array, "n1") is False
    assert bench.state(array, 0) is ElementState.HELD


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for several users")
def test_its_owner_may_let_a_refused_element_go_elsewhere(
    bench: Bench, as_bob: SlurmRunner
) -> None:
    array = bench.submit(tasks=1, user="bob", exclude="n1")
    assert runs(bench, array, "n1", CommandGateway(as_bob)) is False
    assert runs(bench, array, "n3", CommandGateway(as_bob)) is True
