"""A stream in Hugging Face's Trainer goes on after the samples that were trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import started_agents

pytestmark = pytest.mark.frameworks
SCRIPT = Path(__file__).with_name("stream_in_huggingface.py")
OF_A_STEP = 4 * 2  # samples of a rank


def trained(folder: Path, world: int) -> list[int]:
    """The samples that so many ranks have trained, in whole lines."""
    found = [line.split() for path in folder.glob("n[0-9].*") for line in path.open() if line]
    return [int(line[1]) for line in found if len(line) == 2 and line[0] == str(world)]


@pytest.mark.parametrize("variables", [{}, {"READ_BY_ALL": "1"}], ids=["rank 0 reads", "all read"])
def test_no_sample_is_left_out_and_less_than_a_global_batch_is_trained_again(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    (state := tmp_path / "state").mkdir()
    with (
        started_keeper(state) as keeper,
        started_agents(keeper, folder := tmp_path / "trainer", SCRIPT) as agents,
    ):
        agents.own(3)
        agents.start(1, **variables)
        wait_until(lambda: len(trained(folder, 1)) > 20 * OF_A_STEP, 300)
        agents.start(2, 3, **variables)
        wait_until(lambda: len(trained(folder, 3)) > 60 * OF_A_STEP, 300)
        agents.part(2)
        alone = len(trained(folder, 2))
        wait_until(lambda: len(trained(folder, 2)) > alone + 20 * OF_A_STEP, 300)
    found = Counter(row for world in (1, 2, 3) for row in trained(folder, world))
    # What the last step has begun, each rank logs by itself.
    whole = range(max(found) - 2 * OF_A_STEP)
    assert [row for row in whole if not found[row]] == []
    again = sum(found.values()) - len(found)
    print(f"{again} of {len(found)} samples were trained again")
    assert again <= 2 * 3 * OF_A_STEP + 2 * OF_A_STEP
    assert "is a stream" not in agents.log(1)
