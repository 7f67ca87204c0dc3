"""A stream in Hugging Face's Trainer: that its place counts steps is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import started_agents

pytestmark = pytest.mark.frameworks
SCRIPT = Path(__file__).with_name("stream_in_huggingface.py")


def test_another_number_of_ranks_is_said_where_the_data_set_is_a_stream(tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir()
    with (
        started_keeper(state) as keeper,
        started_agents(keeper, folder := tmp_path / "trainer", SCRIPT) as agents,
    ):
        agents.own(2)
        agents.start(1)
        wait_until(lambda: any(path.read_text() for path in folder.glob("n1.*")), 300)
        agents.start(2)
        wait_until(lambda: any(path.read_text() for path in folder.glob("n2.*")), 300)
        said = "the data set is a stream: its place counts steps of 2 ranks now, of 1 before"
        assert agents.log(1).count(said) == 1
