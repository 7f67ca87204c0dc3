"""The command line of ``scripts/bench-impact``: what is run, and where the results go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scripts.benchkit.command import Findings, bench_command, json_text, progress, replace_file
from scripts.benchkit.machine import this_machine
from scripts.impact_bench import report
from scripts.impact_bench.bench import measure
from scripts.impact_bench.figures import delays
from scripts.impact_bench.stream import made_stream
from scripts.impact_bench.trainers import Kind
from scripts.labcluster.cluster import LabError


@bench_command(LabError, TimeoutError)
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=10_000),
    default=300,
    help="How many ordinary jobs, on each side.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=2, max=64),
    default=8,
    help="Of the private cluster; all are this host.",
)
@click.option("--seed", type=int, default=0, help="Of the stream of jobs.")
@click.option(
    "--chunk",
    type=click.IntRange(min=1, max=1000),
    default=30,
    metavar="JOBS",
    help="How many jobs run before the other side has its turn.",
)
@click.option(
    "--load",
    type=click.FloatRange(min=0.05, max=0.95),
    default=0.6,
    help="Node-seconds that jobs ask for, of those that there are while they arrive.",
)
@click.option("--hostile", is_flag=True, help="Trainers that do all not to be ended.")
@click.option(
    "--reserve",
    type=click.IntRange(min=0),
    default=0,
    help="The controller's reserve_nodes: idle nodes that are left to ordinary jobs.",
)
@click.option(
    "--null", is_flag=True, help="No trainers on either side: what this cannot tell apart."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench-impact-output"),
    help="For the table, the JSON, the figure and the daemons' logs; kept up to date.",
)
def main(
    jobs: int,
    nodes: int,
    seed: int,
    chunk: int,
    load: float,
    hostile: bool,
    reserve: int,
    null: bool,
    out: Path,
) -> Findings:
    """Measure what trainers cost ordinary jobs, on a private Slurm cluster on this machine.

    The same stream of ordinary jobs runs without trainers and with trainers on all idle nodes,
    chunk by chunk in turns. About half an hour a side for 300 jobs.

    \b
    Examples:
      scripts/bench-impact --jobs 30
      scripts/bench-impact --hostile --out /var/tmp/hostile
    """
    settings: dict[str, Any] = {
        "jobs": jobs,
        "nodes": nodes,
        "seed": seed,
        "chunk": chunk,
        "load": load,
        "trainers": "none" if null else "hostile" if hostile else "well-behaved",
        "reserve": reserve,
    }
    if reserve >= nodes:
        raise click.BadParameter(f"with {nodes} nodes at most {nodes - 1}", param_hint="--reserve")
    machine = this_machine("mip", "torch")
    title = _title(settings)
    stream = made_stream(jobs, nodes, seed, chunk, load)
    kind = None if null else Kind(hostile, reserve)
    for measured in measure(stream, nodes, kind, out / "logs", progress()):
        # What there is so far: a run takes an hour, and may be stopped.
        text = f"{machine}\n{title}\n\n{report.rendered(measured)}"
        found = report.document(machine, settings, measured)
        replace_file(out / "table.txt", text + "\n")
        replace_file(out / "results.json", json_text(found) + "\n")
        off_s, on_s = delays(measured.off.chunks, measured.on.chunks)
        if off_s:
            replace_file(out / "impact.svg", report.picture(off_s, on_s))
    causes = report.causes(measured)
    replace_file(out / "causes.txt", causes + "\n")
    return Findings(f"{text}\n\n{causes}", found)


def _title(settings: dict[str, Any]) -> str:
    return (
        f"{settings['jobs']} ordinary jobs on {settings['nodes']} nodes, "
        f"seed {settings['seed']}, in chunks of {settings['chunk']}, "
        f"load {settings['load']:g}; trainers: {settings['trainers']}; "
        f"nodes in reserve: {settings['reserve']}"
    )
