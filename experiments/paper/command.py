"""The command line of ``scripts/run paper``: what is run, and where the report goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from experiments.paper import report
from experiments.paper.catalogue import FULL, QUICK, experiments, runs_of
from experiments.paper.replays import SUMMIT, Store, execute
from scripts.benchkit.command import (
    Findings,
    RefusedError,
    bench_command,
    folder,
    number,
    several,
)
from scripts.benchkit.machine import this_machine
from scripts.labcluster.stage import REPO


@bench_command(OSError)
@click.option("--quick", is_flag=True, help="Only a quarter of a day of 256 nodes.")
@several("--only", "only", [str(one.number) for one in experiments(FULL)], "This experiment.")
@number("--jobs", 2, 1, 64)
@folder("--out", "out", "For results.json, by which it goes on.", REPO / "build" / "paper")
@click.option("--docs", is_flag=True, help="Renew the tables of docs/internals/paper.md too.")
def main(
    quick: bool,
    only: Sequence[str],
    jobs: int,
    out: Path,
    docs: bool,
) -> Findings:
    """Repeat the paper's experiments on Summit's holes, and report them in Markdown and JSON.

    What was interrupted goes on where it was: results are kept in the folder.

    \b
    Example:
      scripts/run paper --only 4 --jobs 1
    """
    if docs and quick:
        raise click.UsageError("--docs: not with --quick, which has other figures")
    if not SUMMIT.is_dir():
        raise RefusedError(f"{SUMMIT}: not there; the experiments replay the data in it")
    every = experiments(QUICK if quick else FULL)
    chosen = [one for one in every if str(one.number) in only]
    store = Store(out / "results.json")
    missing = [run for run in runs_of(chosen) if run not in store.results]
    with click.progressbar(length=len(missing), label="replaying", file=sys.stderr) as bar:
        for run, result in execute(missing, jobs, _commit()):
            store.add(run, result)
            bar.update(1)
    found = chosen, store.results, this_machine("mip")
    if docs:
        report.renew(REPO / "docs" / "internals" / "paper.md", *found)
    return Findings(report.page(*found), report.document(*found))


def _commit() -> str:
    """Return the version of the product that runs, with a + where the checkout differs."""
    command = ["git", "-C", str(REPO), "describe", "--always", "--abbrev=10", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
