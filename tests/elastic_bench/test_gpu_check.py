"""What gpu-check says where it cannot check, and where two nodes are to share a GPU."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from scripts import gpu_check


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(gpu_check.main)
    assert result.exit_code == 2
    assert result.output.endswith("sees no GPU here\n")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(("gpus", "used"), [(1, ["0", "0"]), (2, ["0", "1"])])
def test_each_node_has_a_gpu_and_is_a_host_of_its_own(
    monkeypatch: pytest.MonkeyPatch, gpus: int, used: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    nodes = [gpu_check._variables("cuda", task) for task in range(2)]
    assert [node["CUDA_VISIBLE_DEVICES"] for node in nodes] == used
    assert nodes[0]["NCCL_HOSTID"] != nodes[1]["NCCL_HOSTID"]
