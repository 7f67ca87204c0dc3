"""The command line of ``scripts/run bench-elastic``: what is measured, and how often."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.benchkit.command import Findings, bench_command, findings, number, progress, several
from scripts.benchkit.machine import this_machine
from scripts.elastic_bench import report
from scripts.elastic_bench.fleet import SETUPS
from scripts.elastic_bench.measure import measure


@bench_command(TimeoutError)
@several("--setup", "names", SETUPS, "Measure only this one.")
@number(
    "--repeat",
    *(10, 1, 1000),
    "How often a node is killed, leaves and is reclaimed; one joins each time.",
)
def main(names: Sequence[str], repeat: int) -> Findings:
    """Measure how long trainers stand still as nodes come and go, on this machine.

    Four nodes, each a torchrun agent with one training process, on gloo. Stock c10d, tuned, and
    our rendezvous handler with the same script.

    \b
    Example:
      scripts/run bench-elastic --repeat 3 --setup handler
    """
    machine = this_machine("mip", "torch")
    pauses = [measure(SETUPS[name], repeat, progress(f"{name}: ")) for name in names]
    return findings(machine, report.pauses(pauses), targets=report.targets(pauses), pauses=pauses)
