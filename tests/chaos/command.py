"""The command line of ``scripts/run chaos``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from scripts.benchkit.command import Findings, bench_command, folder, number, progress, several
from scripts.labcluster.cluster import LabError
from tests.chaos.failover import EACH, started_hosts
from tests.chaos.faults import CATALOGUE
from tests.chaos.report import rendered
from tests.chaos.run import NotStartedError, begin, run
from tests.chaos.world import started_world

_NODES = 5  # enough for all trainers at their most: with fewer, a plan may leave one without


@bench_command(LabError, NotStartedError, TimeoutError)
@click.option("--seed", type=int, default=0, help="The seed of everything that is random.")
@number("--minutes", 10.0, 0, 10_000, "For how long faults are injected; 0: each fault once.")
@several("--fault", "names", CATALOGUE, "Inject only this fault.")
@number("--double", 0.2, 0, 1, "The share of faults that get a second one on top.")
@folder("--keep", "kept", "For what explains a violation.", Path("chaos-output"))
@number("--gpus", 0, 0, 16, "So many a node, and jobs share nodes; 0: they have whole nodes.")
@number("--failover", 0, 0, 1000, "Instead of faults: how often the first control host dies.")
def main(
    seed: int,
    minutes: float,
    names: list[str],
    double: float,
    kept: Path,
    gpus: int,
    failover: int,
) -> Findings:
    """Break things on a private Slurm cluster that trains, and see whether anything is lost.

    Faults are injected one after the other in a seeded order, with ordinary jobs coming and
    going. After each one all must be well again: everybody trains, nobody twice, nothing is
    leaked, no ordinary job failed, at most the last step or checkpoint is lost. Exit code 1 if not.

    With --gpus trainers and ordinary jobs have parts of nodes, beside each other, and nobody may
    have what another one has, or end with his neighbour.

    With --failover everything on the first of two control hosts ends as with its power; the second
    one takes over. Each time four trainers must train on, and grow onto nodes that come free then.

    \b
    Examples:
      scripts/run chaos --minutes 10
      scripts/run chaos --minutes 0 --fault controller-killed --fault node-vanishes
      scripts/run chaos --gpus 8
      scripts/run chaos --failover 3
    """
    if gpus and failover:
        raise click.UsageError("--gpus is not for --failover: leave it out")
    if os.getuid() != 0:
        click.echo("chaos: needs root: it is several users, and cuts nodes off", err=True)
        sys.exit(2)
    tell, kept = progress(), kept.resolve() / f"seed-{seed}"
    if failover:
        with started_hosts(seed, tell) as (world, host_dies):
            begin(world, EACH)
            found = run(world, {"host-dies": host_dies}, failover, 0, 0, kept)
    else:
        faults = {name: CATALOGUE[name] for name in names}
        with started_world(_NODES, seed, tell, gpus) as world:
            begin(world)
            times = None if minutes else len(faults)
            found = run(world, faults, times, minutes, double, kept)
    found = {"seed": seed, **found}
    wrong = f"{found['violations']} violations, {found['trainers_lost']} trainers lost"
    bad = found["violations"] or found["trainers_lost"]
    return Findings(rendered(found), found, wrong if bad else "")
