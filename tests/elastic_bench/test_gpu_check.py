"""What gpu-check says, and how nodes share a GPU."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from scripts import gpu_check
from scripts.elastic_bench.figures import Step
from scripts.elastic_bench.measure import Measured, NotSettledError


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(gpu_check.main)
    assert result.exit_code == 2
    assert result.output.endswith("sees no GPU here\n")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("gpus", "used", "hosts"), [(1, ["0", "0"], ["n0", "n1"]), (2, ["0", "1"], [None, None])]
)
def test_nodes_that_share_a_gpu_pretend_to_be_hosts(
    monkeypatch: pytest.MonkeyPatch, gpus: int, used: list[str], hosts: list[str | None]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: "H100")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    nodes = [gpu_check._variables("cuda", 2, task) for task in range(2)]
    assert [node["CUDA_VISIBLE_DEVICES"] for node in nodes] == used
    assert [node.get("NCCL_HOSTID") for node in nodes] == hosts
    hardware = gpu_check._hardware("cuda", 2)
    assert str(hardware).startswith(f"NCCL 2.28.9, {gpus} x H100, TORCH_NCCL_")
    assert ("sockets" in hardware.not_shown) == (gpus == 1)


class _Fleet:
    """Two nodes that have made the same steps, with these weights after the second one."""

    def __init__(self, *weights: int) -> None:
        self.logs = self
        self.all = {
            f"n{place}": [Step(1.0, 1, 2, 5), Step(2.0, 2, 2, last)]
            for place, last in enumerate(weights)
        }

    def __enter__(self) -> _Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> None:
        pass


@pytest.mark.parametrize(
    ("weights", "ends", "says"),
    [
        ((7, 7), None, ""),
        ((7, 8), None, "weights differ"),
        ((7, 7), NotSettledError("an agent ended by itself"), "an agent ended"),
        ((7, 7), KeyboardInterrupt(), "stopped"),
    ],
)
def test_what_went_wrong_is_said_after_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, weights: tuple[int, ...], ends: BaseException | None, says: str
) -> None:
    def changes(fleet: object, nodes: int, rounds: int, measured: Measured, *_: object) -> None:
        measured.kill_s.append(0.5)
        if ends is not None:
            raise ends

    monkeypatch.setattr(gpu_check, "Fleet", lambda *_: _Fleet(*weights))
    monkeypatch.setattr(gpu_check, "_changes", changes)
    result = CliRunner().invoke(gpu_check.main, ["--device", "cpu", "--json"])
    assert result.exit_code == (1 if says else 0)
    found = json.loads(result.stdout)
    assert found["pauses"]["kill_s"] == [0.5]
    assert found["weights"]["compared"] == 2
    assert says in result.output
