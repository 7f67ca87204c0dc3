"""Launchers whose command lines name a rendezvous of their own: their nodes form one group."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.labcluster.keeper import started_keeper
from tests.elastic.agents import Agents

_BIN = Path(sys.executable).parent
_TORCHRUN = (_BIN / "torchrun",)
_MODULE = (sys.executable, "-m")
_ACCELERATE = (_BIN / "accelerate", "launch", "--multi_gpu", "--num_processes", "2")
_HEAD = ("--machine_rank", "1", "--main_process_ip", "n9", "--main_process_port", "29500")
_HAS_ACCELERATE = pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "launcher",
    [
        (
            *_TORCHRUN,
            "--nnodes=4",
            "--rdzv_id=$ID",
            "--rdzv_backend=c10d",
            "--rdzv_endpoint=n9:29500",
        ),
        (*_TORCHRUN, "--standalone", "--nproc-per-node=1", "--max-restarts=0"),
        (
            *_TORCHRUN,
            "--nnodes",
            "2",
            "--node_rank",
            "1",
            "--master_addr",
            "n9",
            "--master_port",
            "1",
        ),
        (*_MODULE, "torch.distributed.run", "--rdzv-backend", "static", "--rdzv-endpoint", "n9:1"),
        (
            *_MODULE,
            "torch.distributed.launch",
            "--use-env",
            "--nnodes=2",
            "--node_rank=0",
            "--master_addr=n9",
        ),
        pytest.param((*_ACCELERATE, "--num_machines", "1"), marks=_HAS_ACCELERATE),
    ],
    ids=["c10d", "standalone", "node-rank", "static", "launch", "accelerate"],
)
def test_nodes_meet_whatever_the_command_line_says(
    tmp_path: Path, launcher: Sequence[str | Path]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with started_keeper(state) as keeper:
        agents = Agents(keeper, tmp_path / "trainer", launcher=launcher)
        try:
            agents.own(2)
            agents.start(1)
            agents.wait_for_steps(1)
            alone = agents.last_world(1)  # the processes of a node
            agents.start(2)
            agents.wait_for_world(2 * alone, 1, 2)
            agents.kill(2)
            agents.wait_for_world(alone, 1)
        finally:
            agents.end()
