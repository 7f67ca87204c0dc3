"""Whether training in process works on this machine's GPUs: nodes come and go while it trains.

Each node is a torchrun agent with one process. It has a GPU of its own, or nodes share one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import click
import torch

from bftrainer_slurm.elastic.inprocess.nccl import SETTINGS
from bftrainer_slurm.keeper.client import KeeperError
from scripts.benchkit.command import (
    Findings,
    RefusedError,
    bench_command,
    findings,
    number,
    progress,
)
from scripts.benchkit.machine import this_machine
from scripts.elastic_bench import report
from scripts.elastic_bench.figures import Account, account, usual_step_s
from scripts.elastic_bench.fleet import SETUPS, Fleet, Training
from scripts.elastic_bench.measure import PATIENCE_S, Measured, NotSettledError, settle, turn
from scripts.labcluster.lab import Tell

_TRAINING = Training("tiny", compute_s=0.02, save_every_s=0.0)
_CHANGES = "lost, reclaimed, leaves, joins, process killed"


@dataclass(frozen=True, slots=True)
class Hardware:
    """What was found here, and what a check on it cannot show."""

    device: str
    nccl: str
    gpus: list[str]
    settings: dict[str, str]
    not_shown: str

    def __str__(self) -> str:
        if self.device == "cpu":
            return "gloo on the CPU"
        kinds = ", ".join(f"{self.gpus.count(one)} x {one}" for one in dict.fromkeys(self.gpus))
        return f"NCCL {self.nccl}, {kinds}, {' '.join(map('='.join, self.settings.items()))}"


@bench_command(KeeperError)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda")
@number("--nodes", 2, 2, 8, "They share the GPUs if there are fewer.")
@number("--rounds", 3, 1, 100, "Of all changes.")
def main(device: str, nodes: int, rounds: int) -> Findings:
    """Lose a node, reclaim one, let one leave as planned, and end a training process.

    A node joins after each that went; torchrun starts the process again. Prints how long the others
    stood still, whether the weights were the same on all nodes after each step, and what this
    machine cannot show. With --device=cpu the same on gloo.

    The exit code is 0 if all went well, 1 if not, and 2 if there is no GPU.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedError(f"torch {torch.__version__} sees no GPU here")
    hardware, measured = _hardware(device, nodes), Measured(SETUPS["inprocess"])
    crash_s: list[float] = []
    with Fleet(measured.setup, _TRAINING, lambda task: _variables(device, nodes, task)) as fleet:
        try:
            _changes(fleet, nodes, rounds, measured, crash_s, progress())
        except NotSettledError as error:
            measured.failures.append(str(error))
        except KeyboardInterrupt:
            measured.failures.append("stopped")
        fleet.logs.read()
        found = account(fleet.logs.all)
    crashes = f"{max(crash_s):.3f}" if crash_s else "-"
    return findings(
        this_machine("torch"),
        f"{hardware}; {nodes} nodes, {rounds} rounds",
        report.pauses(_TRAINING.model, [measured])
        + f"\ntraining process killed: pause of the others, at most: {crashes}",
        f"weights: compared after {found.compared} steps, {found.differing} differ; "
        f"{found.missing} steps missing\nnot shown: {hardware.not_shown}",
        wrong=_wrong(measured, found),
        hardware=hardware,
        pauses=measured,
        crash_s=crash_s,
        weights=found,
    )


def _changes(
    fleet: Fleet, nodes: int, rounds: int, measured: Measured, crash_s: list[float], tell: Tell
) -> None:
    """Let nodes come and go. Raises NotSettledError: they do not train on."""
    fleet.start(nodes)
    settle(fleet)
    tell(f"{nodes} nodes train together")
    for done in range(1, rounds + 1):
        turn(fleet, measured)
        crash_s.append(_crash(fleet))
        last = (measured.kill_s, measured.reclaim_s, measured.leave_s, measured.join_s, crash_s)
        times_s = ", ".join(f"{times[-1]:.2f} s" for times in last)
        tell(f"{_CHANGES}: {times_s} (round {done} of {rounds})")


def _crash(fleet: Fleet) -> float:
    """End a training process; return how long the others' longest step took, less a usual one.

    Its agent starts another one.
    """
    node, *others = reversed(fleet.nodes)
    usual_s = usual_step_s(fleet.logs.of(others[0].job))
    since_s, process = time.monotonic(), fleet.crash(node)
    fleet.wait(lambda: fleet.trains(node) not in (None, process), PATIENCE_S)
    settle(fleet)
    longest_s = 0.0
    for other in others:
        times_s = [one.time_s for one in fleet.logs.of(other.job)]
        steps_s = [late - early for early, late in pairwise(times_s) if late > since_s]
        longest_s = max(longest_s, *steps_s)
    return longest_s - usual_s


def _hardware(device: str, nodes: int) -> Hardware:
    if device == "cpu":
        return Hardware(device, "", [], {}, "anything about GPUs and NCCL")
    gpus = [torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count())]
    not_shown = "the network between hosts (all nodes are on this one)"
    if len(gpus) < nodes:
        not_shown += (
            f", and NCCL between GPUs ({nodes} nodes share {len(gpus)}: each pretends to be a host,"
            " and NCCL uses sockets)"
        )
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    nccl = ".".join(map(str, version))
    return Hardware(device, nccl, gpus, SETTINGS, not_shown)


def _variables(device: str, nodes: int, task: int) -> Mapping[str, str]:
    if device == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    gpus = torch.cuda.device_count()
    variables = {"BENCH_DEVICE": "cuda", "CUDA_VISIBLE_DEVICES": str(task % gpus)}
    if gpus < nodes:
        # NCCL does not let two processes of a host share a GPU ("Duplicate GPU detected").
        variables |= {"NCCL_HOSTID": f"n{task}", "NCCL_SOCKET_IFNAME": "lo"}
    return variables


def _wrong(measured: Measured, found: Account) -> str:
    if measured.failures:
        return "; ".join(measured.failures)
    good = found.compared and not found.differing and not found.missing
    return "" if good else "weights differ, or steps are missing"
