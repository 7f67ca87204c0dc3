"""The command line of ``scripts/run chaos``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.benchkit.command import Findings, bench_command, progress
from scripts.chaos_suite.failover import EACH, NODES, host_dies
from scripts.chaos_suite.faults.catalogue import CATALOGUE
from scripts.chaos_suite.fleet import run_fleet
from scripts.chaos_suite.hosts import started_hosts
from scripts.chaos_suite.report import document, fleet_table, table
from scripts.chaos_suite.run import NotStartedError, Result, begin, run
from scripts.chaos_suite.world import started_world
from scripts.elastic_bench.measure import NotSettledError
from scripts.elastic_bench.setups import SETUPS, Setup
from scripts.labcluster.cluster import LabError

_NODES = 5


@bench_command(LabError, NotStartedError, NotSettledError, TimeoutError)
@click.option("--seed", type=int, default=0, help="Of all that is random.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, max=10_000),
    default=10.0,
    help="How long faults are injected; 0: each of them once.",
)
@click.option(
    "--fault",
    "names",
    type=click.Choice(sorted(CATALOGUE)),
    multiple=True,
    help="Only this one; may be given again. [default: all]",
)
@click.option(
    "--double",
    type=click.FloatRange(0, 1),
    default=0.2,
    metavar="SHARE",
    help="The share of faults during which another one comes.",
)
@click.option(
    "--keep",
    "kept",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("chaos-output"),
    help="Where what is needed to explain a violation is kept.",
)
@click.option(
    "--fleet",
    "events",
    type=click.IntRange(min=0, max=100_000),
    default=0,
    metavar="EVENTS",
    help="Without Slurm: so many random kills, joins and leaves of a trainer's nodes.",
)
@click.option(
    "--pace",
    "pace_s",
    type=click.FloatRange(min=0.1, max=60),
    default=2.0,
    metavar="SECONDS",
    help="Between two events of the fleet, on average.",
)
@click.option(
    "--setup",
    "setups",
    type=click.Choice(list(SETUPS)),
    multiple=True,
    default=("handler", "inprocess"),
    help="How the fleet's trainer follows its nodes; may be given again.",
)
@click.option(
    "--failover",
    "failovers",
    type=click.IntRange(min=0, max=1000),
    default=0,
    metavar="TIMES",
    help="Without other faults: the first of two control hosts dies so often.",
)
def main(
    seed: int,
    minutes: float,
    names: Sequence[str],
    double: float,
    kept: Path,
    events: int,
    pace_s: float,
    setups: Sequence[str],
    failovers: int,
) -> Findings:
    """Break things on a private Slurm cluster that trains, and see whether anything is lost.

    Faults are injected one after the other in a seeded order, with ordinary jobs coming and
    going. After each one all must be well again: everybody trains, nobody twice, nothing is
    leaked, no ordinary job failed, at most the last step or checkpoint is lost. Exit code 1 if not.

    With --failover everything on the first of two control hosts ends as with its power; the second
    one takes over. Each time four trainers must train on, and grow onto nodes that come free then.

    With --fleet nodes come and go at random without Slurm, one event after the other, and the
    trainer must train on at the end, with equal weights everywhere. That needs no root.

    \b
    Examples:
      scripts/run chaos --minutes 10
      scripts/run chaos --minutes 0 --fault controller-killed --fault node-vanishes
      scripts/run chaos --fleet 200 --pace 1
      scripts/run chaos --failover 3
    """
    if events:
        return _fleet(events, pace_s, seed, [SETUPS[name] for name in dict.fromkeys(setups)])
    if os.getuid() != 0:
        click.echo("chaos: needs root: it is several users, and cuts nodes off", err=True)
        sys.exit(2)
    result, tell = Result(seed), progress()
    kept = kept.resolve() / f"seed-{seed}"
    if failovers:
        with started_hosts(NODES, seed, tell) as (world, hosts):
            begin(world, EACH)
            run(world, {"host-dies": host_dies(hosts)}, result, failovers, 0, 0, kept)
    else:
        faults = {name: CATALOGUE[name] for name in names or CATALOGUE}
        with started_world(_NODES, seed, tell) as world:
            begin(world)
            run(world, faults, result, None if minutes else len(faults), minutes, double, kept)
    return Findings(
        table(result), document(result), _verdict(result.violations, result.trainers_lost)
    )


def _fleet(events: int, pace_s: float, seed: int, setups: Sequence[Setup]) -> Findings:
    results = [
        run_fleet(setup, events, pace_s, seed, progress(f"{setup.title}: ")) for setup in setups
    ]
    violations = sum(len(one.violations) for one in results)
    return Findings(fleet_table(results), results, _verdict(violations))


def _verdict(violations: int, lost: int = 0) -> str:
    return f"{violations} violations, {lost} trainers lost" if violations or lost else ""
