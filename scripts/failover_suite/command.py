"""The command line of ``scripts/run failover``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from scripts.benchkit.command import Findings, bench_command, progress
from scripts.failover_suite.run import LIMIT_S, Failover, started_trial
from scripts.labcluster.cluster import LabError


@bench_command(LabError, TimeoutError)
@click.option("--runs", type=click.IntRange(1, 1000), default=20, help="How often.")
@click.option(
    "--keep",
    "kept",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("failover-output"),
    help="Where the logs are kept of a run that went wrong.",
)
def main(runs: int, kept: Path) -> Findings:
    """Kill everything on the first of two control hosts while four trainers train.

    slurmctld, the controller and the keeper end there as with its power; the second host takes
    over. Each time the trainers must train on, and grow onto nodes that come free then, with none
    cancelled, doubled or lost. Exit code 1 if not. Needs root.

    \b
    Example:
      scripts/run failover --runs 3
    """
    if os.getuid() != 0:
        click.echo("failover: needs root: its hosts have networks of their own", err=True)
        sys.exit(2)
    tell, found = progress(), []
    with started_trial(tell) as trial:
        for number in range(1, runs + 1):
            try:
                found.append(trial.fail_over())
            except TimeoutError:
                trial.keep(kept.resolve() / f"run-{number}")
                raise
            tell(f"run {number}: {line(found[-1])}")
            if not found[-1].good:
                trial.keep(kept.resolve() / f"run-{number}")
        tell(f"slurmctld ended by itself {trial.hosts.ended} times")
    good = sum(one.good for one in found)
    text = "\n".join(f"{number:3} {line(one)}" for number, one in enumerate(found, start=1))
    wrong = "" if good == runs else f"{runs - good} of {runs} failovers went wrong"
    return Findings(
        f"{text}\n{good} of {runs} as they must be (within {LIMIT_S:g} s)", found, wrong
    )


def line(one: Failover) -> str:
    """Return one failover in a line."""
    words = [f"second slurmctld after {one.second_s:.1f} s"]
    for name, seconds in (("leads", one.leads_s), ("grown", one.grown_s), ("trains", one.trains_s)):
        words.append(f"{name} -" if seconds is None else f"{name} {seconds:.1f} s later")
    words.append(f"longest pause {one.pause_s:.1f} s")
    return "; ".join([*words, *(one.violations or ["good"])])
