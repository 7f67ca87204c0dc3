"""The command line of ``scripts/run paper``: what is run, and where the report goes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click

from bftrainer_slurm.cli.common import fail
from scripts.benchkit.command import Findings, bench_command
from scripts.benchkit.machine import this_machine
from scripts.evidence.paper.catalogue import FULL, QUICK, TRAINERS, experiments, runs_of
from scripts.evidence.paper.replays import SUMMIT, Store, StoreError, execute
from scripts.evidence.paper.report import Report, document, refresh_page, write_report

REPO = Path(__file__).resolve().parents[3]


@bench_command()
@click.option("--quick", is_flag=True, help="A quarter of a day of 256 nodes, few runs: seconds.")
@click.option(
    "--only", type=click.IntRange(1, 6), multiple=True, help="This experiment; may be repeated."
)
@click.option(
    "--trainers",
    type=click.Choice(list(TRAINERS)),
    multiple=True,
    help="These only; may be repeated. [default: both]",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=REPO / "build" / "paper",
    show_default="build/paper",
    help="The report's folder.",
)
@click.option(
    "--docs",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Renew the tables and pictures of this folder's paper.md too.",
)
def main(
    quick: bool,
    only: tuple[int, ...],
    trainers: tuple[str, ...],
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
        fail(f"{SUMMIT}: not there; the experiments replay the data in it")
    size = QUICK if quick else FULL
    if trainers:
        size = replace(size, trainers=trainers)
    chosen = [one for one in experiments(size) if one.number in only or not only]
    if not chosen:
        fail("--only: --quick has no such experiment")
    try:
        store = Store(out / "results.json")
    except StoreError as error:
        fail(str(error))
    missing = [run for run in runs_of(chosen) if run not in store.results]
    try:
        with click.progressbar(length=len(missing), label="replaying", file=sys.stderr) as bar:
            for run, result in execute(missing, jobs, _commit()):
                store.add(run, result)
                bar.update(1)
        report = Report(chosen, store.results, this_machine("mip"))
        greedy = report.plans["greedy"]
        if greedy:
            click.echo(f"{greedy} plans are greedy: the solver gave none in its time", err=True)
        page = write_report(report, out)
        if docs is not None:
            refresh_page(docs / "paper.md", report)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    return Findings(page, document(report))


def _commit() -> str:
    """Return the version of the product that runs, with a + where the checkout differs."""
    command = ["git", "-C", str(REPO), "describe", "--always", "--abbrev=10", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
