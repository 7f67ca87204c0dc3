"""Scripts as people write them, as trainers: some here, all by ``make launch-corpus``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bftrainer_slurm
from scripts.benchkit.steps import Step
from scripts.labcluster.site import Site, started_site
from scripts.launch_corpus.command import table
from scripts.launch_corpus.runner import SETTINGS, Outcome, Shape, groups, run, shapes, whole

# Those that go furthest from what other tests start; elastic/test_tasks has torchrun's options.
_HERE = ("two-trainings", "python-exported-ranks")
_NODES = 2


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(_NODES, SETTINGS) as running:
        yield running


@pytest.mark.slurm
@pytest.mark.torch
@pytest.mark.once
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", _HERE)
def test_a_script_forms_one_group_and_goes_on_after_a_reclaim(site: Site, name: str) -> None:
    assert run(site, shapes()[name], _NODES).wrong == ""


def test_each_script_says_by_what_it_starts_its_training() -> None:
    found = shapes()
    assert "launch" not in found  # others start it
    assert {one.launcher for one in found.values() if not one.message} > {"torchrun", "srun python"}
    assert found["mpirun"].message == "starts its processes"
    assert list(found.values())[-1].message


def test_processes_that_report_the_same_group_train_together() -> None:
    def step(time_s: float, node: str, group: str, rank: int) -> Step:
        return Step(time_s, 2, 1, node, 10, {"group": group, "rank": rank})

    steps = [step(1.0, node, "old", 0) for node in ("n1", "n2", "n3")]
    steps += [step(99.0, "n2", "a", 1), step(100.0, "n1", "a", 0), step(40.0, "n3", "a", 2)]
    (group,) = groups(steps, 100.0)
    assert ({one.node for one in group}, whole(group)) == ({"n1", "n2"}, True)
    assert [whole(one) for one in groups(steps, 100.0, 99.5)] == [False]


def test_the_table_says_what_went_wrong() -> None:
    outcomes = [
        Outcome(Shape("a", "torchrun"), processes=6, joined_s=9.04, went_on_s=1.0),
        Outcome(Shape("b", "mpirun", "mpirun starts"), message_s=20.0),
        Outcome(Shape("c", "python"), "no group of n1+n2: nobody trains"),
    ]
    lines = [line.split() for line in table(outcomes).splitlines()]
    assert lines[1] == ["torchrun", "a", "one", "group", "6", "9.0", "s", "1.0", "s"]
    assert lines[2] == ["mpirun", "b", "message", "20.0", "s"]
    assert lines[3][2:] == ["no", "group", "of", "n1+n2:", "nobody", "trains"]


def test_each_message_that_a_shape_waits_for_is_one_that_we_write() -> None:
    package = Path(bftrainer_slurm.__file__).parent
    written = "".join(path.read_text() for path in package.rglob("*.py"))
    assert [one.name for one in shapes().values() if one.message not in written] == []
