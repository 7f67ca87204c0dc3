"""Several trainings in one script: each trains as in an ordinary job, and goes on by itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import started_agents

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly]
BATCHES = 4 * 120 * 2 // 3 // 8  # of a fold, on one node


def trained(folder: Path, process: str = "*") -> Counter[str]:
    """Batches of 8 samples that the processes have trained of each fold."""
    logs = folder.glob(f"n[0-9].{process}")
    return Counter(line.split()[0] for path in logs for line in path.read_text().splitlines())


@pytest.mark.parametrize("framework", ["lightning", "huggingface"])
def test_each_fold_trains_all_of_its_steps(tmp_path: Path, framework: str) -> None:
    (state := tmp_path / "state").mkdir()
    script = Path(__file__).with_name(f"folds_in_{framework}.py")
    with (
        started_keeper(state) as keeper,
        started_agents(keeper, folder := tmp_path / "trainer", script) as agents,
    ):
        agents.own(1)
        agents.start(1)
        assert agents.processes[1].wait(300) == 0, agents.log(1)
    assert trained(folder) == {"0": BATCHES, "1": BATCHES, "2": BATCHES, "ended": 1}
    assert "goes on from" not in agents.log(1)


@pytest.mark.parametrize("framework", ["lightning", "huggingface"])
def test_after_a_join_finished_folds_are_passed_over_and_the_present_one_goes_on(
    tmp_path: Path, framework: str
) -> None:
    (state := tmp_path / "state").mkdir()
    script = Path(__file__).with_name(f"folds_in_{framework}.py")
    with (
        started_keeper(state) as keeper,
        started_agents(keeper, folder := tmp_path / "trainer", script) as agents,
    ):
        agents.own(2)
        agents.start(1, OWN_FOLDERS="{}")
        wait_until(lambda: trained(folder)["1"] > 2)
        agents.start(2, OWN_FOLDERS="{}")
        wait_until(lambda: trained(folder)["ended"] == 2, 300)
    found = trained(folder)
    assert found["0"] == BATCHES
    # A rank's last batch may be filled up, and what is left of a global batch is trained again.
    assert all(BATCHES <= found[fold] <= BATCHES + 16 for fold in "12")
