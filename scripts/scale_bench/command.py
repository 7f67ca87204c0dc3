"""The command line of ``scripts/run bench-scale``: how large a cluster, and how long."""

from __future__ import annotations

import click

from bftrainer_slurm.controller.settings import Settings
from scripts.benchkit.command import Findings, bench_command, findings, number
from scripts.benchkit.machine import this_machine
from scripts.scale_bench.course import MAX_NODES, NeverSettledError, Size, StoppedError
from scripts.scale_bench.measure import measure
from scripts.scale_bench.report import SIMULATED, tables, targets


@bench_command(NeverSettledError, StoppedError)
@number("--nodes", Size().nodes, 50, 50_000)
@number("--trainers", Size().trainers, 1, 1000)
@number(
    "--elements",
    *(Size().elements, 10, 50_000),
    "How many run while nothing changes; a fifth is reclaimed at once, a tenth joins.",
)
@number(
    "--minutes",
    *(Size().minutes, 0.1, 600),
    "How long there is a change a second; the other phases take as long again.",
)
@click.option("--seed", type=int, default=0, help="Of all random choices.")
@click.option(
    "--rl-enable",
    is_flag=True,
    help="slurmctld limits each user's requests, as with SlurmctldParameters=rl_enable.",
)
def main(
    nodes: int, trainers: int, elements: int, minutes: float, seed: int, rl_enable: bool
) -> Findings:
    """Measure the controller on a large cluster that is simulated; the daemon itself is real.

    It starts, is at rest, sees the whole queue of ordinary jobs change again and again, then a
    change a second, then many nodes freed at once, and twice many elements reclaimed at once.

    \b
    Example:
      scripts/run bench-scale --nodes 1000 --trainers 30 --elements 500 --minutes 1
    """
    if elements > min(nodes * 9 // 10, trainers * MAX_NODES):
        raise click.UsageError(
            f"--elements {elements} do not fit: take at most nine tenths of --nodes, and "
            f"{MAX_NODES} for each of --trainers"
        )
    found = measure(Size(nodes, trainers, elements, minutes, seed, rl_enable=rl_enable), Settings())
    judged = targets(found)
    machine = this_machine()
    return findings(machine, *tables(found), targets=judged, simulated=SIMULATED, found=found)
