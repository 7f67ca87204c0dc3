"""Frameworks that read their rank from srun, unchanged: their nodes form one group."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from tests.elastic.agents import Agents
from tests.elastic.test_tasks import srun_says

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly]


def test_lightning_counts_the_nodes_that_there_are(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    script = Path(__file__).with_name("by_srun.py")
    with started_keeper(state) as keeper:
        agents = Agents(keeper, tmp_path / "trainer", script, launcher=(sys.executable,))
        try:
            agents.own(2)
            agents.start(1, **srun_says("n1"), SLURM_NNODES="1")
            agents.wait_for_world(1, 1)
            agents.start(2, **srun_says("n2"), SLURM_NNODES="1")
            agents.wait_for_world(2, 1, 2)
        finally:
            agents.end()
