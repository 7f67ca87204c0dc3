"""The command line of ``scripts/run bench-impact``: what is run, and where the results go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scripts.benchkit.command import (
    Findings,
    bench_command,
    findings,
    folder,
    json_text,
    number,
    progress,
    replace_file,
)
from scripts.benchkit.machine import this_machine
from scripts.benchkit.text import table
from scripts.impact_bench.figures import delays_s, figures_of, targets
from scripts.impact_bench.run import KILL_WAIT_S, QUICK, QUICKER, SITE, measure
from scripts.impact_bench.stream import busy_stream, quicker
from scripts.labcluster.cluster import LabError


@bench_command(LabError, TimeoutError)
@number("--jobs", 100, 2, 10_000, "How many ordinary jobs, on each side.")
@number("--nodes", 8, 2, 64, "Of each private cluster; all are this host.")
@number("--gpus", 0, 0, 16, "GPUs a node: ordinary jobs of 1 to 16 GPUs share nodes.")
@click.option("--seed", type=int, default=1, help="Of the stream of jobs.")
@number("--load", *(0.6, 0.05, 0.95), "Of all node-seconds, while jobs arrive: what they ask for.")
@number("--longer", 1, 1, 100, "Jobs run so many times as long, and come as much more seldom.")
@click.option("--open", "no_head", is_flag=True, help="No job of all nodes waits before them.")
@click.option("--null", is_flag=True, help="No trainers on either side: the error of the bench.")
@click.option("--quick", is_flag=True, help="All thirty times as fast: a try, less precise.")
@folder("--out", "out", "For table, JSON and the daemons' logs.", Path("bench-impact-output"))
def main(null: bool, quick: bool, out: Path, **asked: Any) -> Findings:
    """Measure what trainers cost ordinary jobs, on two private Slurm clusters on this machine.

    The same stream of ordinary jobs runs on both, side by side, and on one of them trainers have
    what it leaves. Slurm has its own settings (a pass of backfill each 30 s), and a job of all
    nodes waits at the head of the queue (or none, with --open). About half an hour for 100 jobs.

    \b
    Examples:
      scripts/run bench-impact --jobs 25
      scripts/run bench-impact --nodes 4 --gpus 8
      scripts/run bench-impact --nodes 4 --gpus 8 --open --jobs 45 --null
    """
    try:
        stream = busy_stream(**asked)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--load") from error
    nodes, gpus = asked["nodes"], asked["gpus"]
    pace = QUICK if quick else SITE
    settings = asked | {"null": null, **pace, "KillWait": KILL_WAIT_S}
    machine = this_machine("mip")
    stream = quicker(stream, QUICKER) if quick else stream
    off, on = measure(stream, nodes, gpus, pace, null, out / "logs", progress())
    both = off, on, nodes, max(1, gpus)
    delays, figures = delays_s(*both), figures_of(*both)
    rows = [["start delay, s", "JOBS", "MEDIAN", "MEAN", "P95", "MAX"]]
    for name, one in delays.items():
        values = (one.median, one.mean, one.p95, one.most)
        rows.append([f"  {name}", str(one.count), *(f"{value:.2f}" for value in values)])
    found = findings(
        machine,
        ", ".join(f"{name}: {value}" for name, value in settings.items()),
        table(rows),
        table((name, f"{value:,.1f}") for name, value in figures.items()),
        targets=targets(delays, figures, gpus),
        settings=settings,
        delays_s=delays,
        figures=figures,
        sides={side.name: side for side in (off, on)},
    )
    replace_file(out / "table.txt", found.text + "\n")
    replace_file(out / "results.json", json_text(found.document) + "\n")
    return found
