"""Whether training in process works on this machine's GPUs: nodes come and go while it trains.

Two nodes, each a torchrun agent with one process, with a GPU each or both on the same one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import click
import torch

from scripts.elastic_bench.figures import Account, account, standstill, usual_step_s
from scripts.elastic_bench.fleet import Fleet, Training
from scripts.elastic_bench.measure import NotSettledError, settle
from scripts.elastic_bench.setups import SETUPS

_NODES = 2
_TRAINING = Training("tiny", compute_s=0.02, save_every_s=0.0)


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Of all changes."
)
def main(device: str, rounds: int) -> None:
    """Kill a node, let one leave, reclaim one, and have one join after each.

    Prints how long the other stood still, and whether the weights were the same on all nodes after
    each step. With --device=cpu the same on gloo.
    """
    if device == "cuda" and not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} sees no GPU here", file=sys.stderr)
        sys.exit(2)
    print(f"torch {torch.__version__}, {_where(device)}, {_NODES} nodes, {rounds} rounds")
    try:
        with Fleet(SETUPS["inprocess"], _TRAINING, lambda task: _variables(device, task)) as fleet:
            found = _course(fleet, rounds)
    except NotSettledError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        sys.exit(1)
    print(
        f"weights: compared after {found.compared} steps, {found.differing} differ; "
        f"{found.missing} steps missing"
    )
    sys.exit(1 if found.differing or found.missing or not found.compared else 0)


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
        # NCCL lets no two processes of a host use the same GPU; these are to be hosts of their own.
        "NCCL_HOSTID": f"n{task}",
        "NCCL_SOCKET_IFNAME": "lo",
    }


def _course(fleet: Fleet, rounds: int) -> Account:
    fleet.start(_NODES)
    settle(fleet)
    ways = {"killed": fleet.kill, "leaves as planned": fleet.part, "reclaimed": fleet.reclaim}
    pauses: dict[str, list[float]] = {name: [] for name in (*ways, "joins")}
    for number in range(rounds):
        for name, take in ways.items():
            victim = fleet.nodes[number % _NODES]  # rank 0 as often as the other
            planned = name == "leaves as planned"
            pauses[name].append(_pause(fleet, planned, partial(take, victim)))
            pauses["joins"].append(_pause(fleet, True, fleet.start))
    for name, times in pauses.items():
        print(f"a node {name}: the other stands still {median(times):.2f} s, {max(times):.2f} most")
    return account(fleet.logs.all)


def _pause(fleet: Fleet, planned: bool, change: Callable[[], object]) -> float:
    before = {node.job for node in fleet.nodes}
    usual_s, since_s = usual_step_s(fleet.logs.of(fleet.nodes[0].job)), time.monotonic()
    change()
    settle(fleet)
    stayed = [node.job for node in fleet.nodes if node.job in before]
    steps, world = fleet.logs.of(stayed[0]), len(fleet.nodes)
    found = standstill(steps, since_s, world, usual_s, planned)
    if found is None:
        raise NotSettledError("a node made no step before the change")
    return found


if __name__ == "__main__":
    main()
