"""The command line of ``scripts/run paper``: what is run, and where the report goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from experiments.paper.catalogue import FULL, QUICK, experiments, runs_of
from experiments.paper.replays import SUMMIT, Store, execute
from experiments.paper.report import Report, document, refresh_page, write_report
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
@click.option("--quick", is_flag=True, help="A quarter of a day of 256 nodes, few runs: seconds.")
@several("--only", "only", [str(one.number) for one in experiments(FULL)], "This experiment.")
@number("--jobs", 2, 1, 64)
@folder("--out", "out", "The report's folder.", REPO / "build" / "paper")
@folder("--docs", "docs", "Renew the tables and pictures of this folder's paper.md too.")
def main(
    quick: bool,
    only: Sequence[str],
    jobs: int,
    out: Path,
    docs: Path | None,
) -> Findings:
    """Repeat the paper's experiments on Summit's holes, and report them in Markdown and JSON.

    What was interrupted goes on where it was: results are kept in the folder.

    \b
    Example:
      scripts/run paper --only 4 --jobs 1
    """
    if not SUMMIT.is_dir():
        raise RefusedError(f"{SUMMIT}: not there; the experiments replay the data in it")
    every = experiments(QUICK if quick else FULL)
    chosen = [one for one in every if str(one.number) in only]
    if not chosen:
        raise RefusedError("--only: --quick has no such experiment")
    store = Store(out / "results.json")
    missing = [run for run in runs_of(chosen) if run not in store.results]
    with click.progressbar(length=len(missing), label="replaying", file=sys.stderr) as bar:
        for run, result in execute(missing, jobs, _commit()):
            store.add(run, result)
            bar.update(1)
    report = Report(chosen, store.results, this_machine("mip"))
    if greedy := report.plans["greedy"]:
        click.echo(f"{greedy} plans are greedy: the solver gave none in its time", err=True)
    page = write_report(report, out)
    if docs is not None:
        refresh_page(docs / "paper.md", report)
    return Findings(page, document(report))


def _commit() -> str:
    """Return the version of the product that runs, with a + where the checkout differs."""
    command = ["git", "-C", str(REPO), "describe", "--always", "--abbrev=10", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
