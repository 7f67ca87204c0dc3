"""Whether training in process works on this machine's GPUs: nodes come and go while it trains.

Two nodes, each a torchrun agent with one process. Each has its own GPU, or both share one.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
import torch

from scripts.benchkit.command import Findings, RefusedError, bench_command, number
from scripts.elastic_bench import report
from scripts.elastic_bench.figures import account
from scripts.elastic_bench.fleet import Fleet, Training
from scripts.elastic_bench.measure import Measured, NotSettledError, settle, turn
from scripts.elastic_bench.setups import SETUPS

_NODES = 2
_TRAINING = Training("tiny", compute_s=0.02, save_every_s=0.0)


@bench_command(NotSettledError)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda")
@number("--rounds", 3, 1, 100, "Of all changes.")
def main(device: str, rounds: int) -> Findings:
    """Kill a node, let one leave, reclaim one, and have one join after each.

    Prints how long the other stood still, and whether the weights were the same on all nodes after
    each step. With --device=cpu the same on gloo.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedError(f"torch {torch.__version__} sees no GPU here")
    measured = Measured(SETUPS["inprocess"])
    with Fleet(measured.setup, _TRAINING, lambda task: _variables(device, task)) as fleet:
        fleet.start(_NODES)
        settle(fleet)
        for _ in range(rounds):
            turn(fleet, measured)
        found = account(fleet.logs.all)
    text = (
        f"torch {torch.__version__}, {_where(device)}, {_NODES} nodes, {rounds} rounds\n"
        f"{report.pauses(_TRAINING.model, [measured])}\n"
        f"weights: compared after {found.compared} steps, {found.differing} differ; "
        f"{found.missing} steps missing"
    )
    good = found.compared and not found.differing and not found.missing
    wrong = "" if good else "weights differ, or steps are missing"
    return Findings(text, {"pauses": measured, "weights": found}, wrong)


def _where(device: str) -> str:
    if device == "cpu":
        return "gloo on the CPU"
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"


def _variables(device: str, task: int) -> Mapping[str, str]:
    if device == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    return {
        "BENCH_DEVICE": "cuda",
        "CUDA_VISIBLE_DEVICES": str(task % torch.cuda.device_count()),
        # NCCL does not let two processes of a host share a GPU, so each pretends to be a host.
        "NCCL_HOSTID": f"n{task}",
        "NCCL_SOCKET_IFNAME": "lo",
    }
