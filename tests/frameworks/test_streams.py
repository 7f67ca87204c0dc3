"""A stream in Hugging Face's Trainer goes on after the samples that were trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import started_agents, steps_in

pytestmark = pytest.mark.frameworks
SCRIPT = Path(__file__).with_name("stream_in_huggingface.py")
OF_A_STEP = 4 * 2  # samples of a rank


def test_no_sample_is_left_out_and_less_than_a_global_batch_is_trained_again(
    tmp_path: Path,
) -> None:
    (state := tmp_path / "state").mkdir()
    with (
        started_keeper(state) as keeper,
        started_agents(keeper, folder := tmp_path / "trainer", SCRIPT) as agents,
    ):

        def trained(world: int) -> int:
            return sum(step.world == world for step in steps_in(folder))

        agents.own(3)
        agents.start(1)
        wait_until(lambda: trained(1) > 20 * OF_A_STEP, 300)
        agents.start(2, 3)
        wait_until(lambda: trained(3) > 60 * OF_A_STEP, 300)
        agents.part(2)
        before = trained(2)  # as one of them joined
        wait_until(lambda: trained(2) > before + 20 * OF_A_STEP, 300)
    found = Counter(step.number for step in steps_in(folder))
    # What the last step has begun, each rank logs by itself.
    whole = range(max(found) - 2 * OF_A_STEP)
    assert [row for row in whole if not found[row]] == []
    again = sum(found.values()) - len(found)
    print(f"{again} of {len(found)} samples were trained again")
    assert again <= 2 * 3 * OF_A_STEP + 2 * OF_A_STEP
    assert "is a stream" not in agents.log(1)
