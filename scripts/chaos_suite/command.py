"""The command line of ``scripts/chaos``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.chaos_suite.faults.catalogue import CATALOGUE
from scripts.chaos_suite.report import document, table
from scripts.chaos_suite.run import NotStartedError, Result, run
from scripts.chaos_suite.world import started_world
from scripts.labcluster.cluster import LabError


@click.command()
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, max=10_000),
    default=10.0,
    show_default=True,
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
    show_default=True,
    metavar="SHARE",
    help="The share of faults during which another one comes.",
)
@click.option("--nodes", type=click.IntRange(4, 16), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every single fault.")
@click.option(
    "--keep",
    "kept",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("chaos-output"),
    show_default=True,
    help="Where what is needed to explain a violation is kept.",
)
def chaos(
    seed: int,
    minutes: float,
    names: Sequence[str],
    double: float,
    nodes: int,
    as_json: bool,
    kept: Path,
) -> None:
    """Break things on a private Slurm cluster that trains, and see whether anything is lost.

    Faults are injected one after the other in a seeded order, with ordinary jobs coming and
    going. After each one all must be well again: everybody trains, nobody twice, nothing is
    leaked, no ordinary job failed, at most the last step or checkpoint is lost. Exit code 1 if not.

    \b
    Examples:
      scripts/chaos --minutes 10
      scripts/chaos --minutes 0 --fault controller-killed --fault node-vanishes
    """
    if os.getuid() != 0:
        click.echo("chaos: needs root: it is several users, and cuts nodes off", err=True)
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin_s = time.monotonic()

    def tell(text: str) -> None:
        click.echo(f"{time.monotonic() - begin_s:7.0f} s  {text}", err=True)

    result = Result(seed)
    try:
        with started_world(nodes, seed, tell) as world:
            faults = [CATALOGUE[name] for name in names or CATALOGUE]
            run(world, faults, result, minutes, double, kept.resolve() / f"seed-{seed}", tell)
    except (LabError, NotStartedError) as error:
        click.echo(f"chaos: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("\nstopped; the cluster and all that ran on it has been ended", err=True)
        sys.exit(130)
    click.echo(json.dumps(document(result), indent=2) if as_json else table(result))
    sys.exit(0 if result.good else 1)


def main() -> None:
    """Run the command."""
    chaos()
