"""Trainings of which nodes join and leave: several in one script, and one on a stream."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import Agents, started_agents, steps_in
from tests.elastic.test_tasks import srun_says

pytestmark = pytest.mark.frameworks
BATCHES = 4 * 120 * 2 // 3 // 8  # of a fold, on one node
OF_A_STEP = 4 * 2  # samples of the stream for a rank


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    (state := tmp_path / "state").mkdir()
    script = Path(__file__).with_name("trainings.py")
    with (
        started_keeper(state) as keeper,
        started_agents(keeper, tmp_path / "trainer", script) as running,
    ):
        running.own(2)
        yield running


def trained(agents: Agents) -> Counter[int]:
    """How often each fold, or each sample of the stream, has been trained."""
    return Counter(step.number for step in steps_in(agents.folder))


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["lightning", "huggingface"])
def test_each_fold_trains_all_of_its_steps(agents: Agents, framework: str) -> None:
    agents.start(1, FRAMEWORK=framework)
    assert agents.processes[1].wait(300) == 0, agents.log(1)
    assert trained(agents) == {0: BATCHES, 1: BATCHES, 2: BATCHES}
    assert "goes on from" not in agents.log(1)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["lightning", "huggingface"])
def test_after_a_join_finished_folds_are_passed_over_and_the_present_one_goes_on(
    agents: Agents, framework: str
) -> None:
    how = {"FRAMEWORK": framework, "OWN_FOLDERS": "{}"}
    agents.start(1, **how)
    wait_until(lambda: trained(agents)[1] > 2)
    agents.start(2, **how)
    assert [agents.processes[task].wait(300) for task in (1, 2)] == [0, 0]
    found = trained(agents)
    assert found[0] == BATCHES
    # A rank's last batch may be filled up, and what is left of a global batch is trained again.
    assert all(BATCHES <= found[fold] <= BATCHES + 16 for fold in (1, 2))


@pytest.mark.nightly
def test_lightning_counts_the_nodes_that_there_are_where_srun_says_its_rank(agents: Agents) -> None:
    agents.launcher = (sys.executable,)
    for task in (1, 2):
        how = {"FRAMEWORK": "lightning", "NODES": "4", "SLURM_NNODES": "1"}
        agents.start(task, **srun_says(f"n{task}"), **how)
        agents.wait_for_world(task, *range(1, task + 1))


def test_of_hugging_faces_stream_no_sample_is_left_out_and_few_are_trained_again(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for(world: int, steps: int) -> None:
        def samples() -> int:
            return sum(step.world == world for step in steps_in(agents.folder))

        before = samples()
        wait_until(lambda: samples() > before + steps * OF_A_STEP, 300)

    monkeypatch.setenv("STREAM", "yes")
    agents.own(3)
    agents.start(1)
    wait_for(1, 20)
    agents.start(2, 3)
    wait_for(3, 60)
    agents.part(2)
    wait_for(2, 20)
    found = trained(agents)
    # What the last step has begun, each rank logs by itself.
    whole = range(max(found) - 2 * OF_A_STEP)
    assert [row for row in whole if not found[row]] == []
    again = sum(found.values()) - len(found)
    print(f"{again} of {len(found)} samples were trained again")
    assert again <= 2 * 3 * OF_A_STEP + 2 * OF_A_STEP
    assert "is a stream" not in agents.log(1)
