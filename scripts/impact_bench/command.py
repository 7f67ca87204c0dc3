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
from scripts.impact_bench.bench import KILL_WAIT_S, QUICK, QUICKER, SITE, measure
from scripts.impact_bench.figures import document, figures_of, rendered
from scripts.impact_bench.stream import busy_stream, open_stream, quicker
from scripts.impact_bench.trainers import SCRIPTS
from scripts.labcluster.cluster import LabError


@bench_command(LabError, TimeoutError)
@number("--jobs", 100, 2, 10_000, "How many ordinary jobs, on each side.")
@number("--nodes", 8, 2, 64, "Of each private cluster; all are this host.")
@number("--gpus", 0, 0, 16, "GPUs a node: ordinary jobs of 1 to 16 GPUs share nodes.")
@click.option("--seed", type=int, default=1, help="Of the stream of jobs.")
@number(
    "--load",
    *(0.6, 0.05, 0.95),
    "Node-seconds that jobs ask for, of those that there are while they arrive.",
)
@number("--longer", 1, 1, 100, "Jobs run so many times as long, and come as much more seldom.")
@click.option(
    "--trainers",
    type=click.Choice(list(SCRIPTS)),
    default="polite",
    help="Whether elements sleep, or resist being ended; none: a run to see the bench's own error.",
)
@click.option(
    "--open",
    "no_head",
    is_flag=True,
    help="No job of all nodes at the head of the queue: most jobs start as they come.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Schedulers and jobs thirty times as fast as at a site: a quick, less precise try.",
)
@folder(
    "--out",
    "out",
    "For the table, the JSON and the daemons' logs.",
    Path("bench-impact-output"),
)
def main(
    jobs: int,
    nodes: int,
    gpus: int,
    seed: int,
    load: float,
    longer: int,
    trainers: str,
    no_head: bool,
    quick: bool,
    out: Path,
) -> Findings:
    """Measure what trainers cost ordinary jobs, on two private Slurm clusters on this machine.

    The same stream of ordinary jobs runs on both, side by side, and on one of them trainers have
    what it leaves. Slurm has its own settings (a pass of backfill each 30 s), and a job of all
    nodes waits at the head of the queue (or none, with --open). About half an hour for 100 jobs.

    \b
    Examples:
      scripts/run bench-impact --jobs 25
      scripts/run bench-impact --nodes 4 --gpus 8
      scripts/run bench-impact --nodes 4 --gpus 8 --open --jobs 45 --trainers none
      scripts/run bench-impact --trainers hostile --out /var/tmp/hostile
    """
    try:
        make = open_stream if no_head else busy_stream
        stream = make(jobs, nodes, seed, load, gpus, longer)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--load") from error
    pace = QUICK if quick else SITE
    parts = parts_of(gpus)
    asked: dict[str, Any] = {
        "jobs": jobs,
        "nodes": nodes,
        "gpus": gpus,
        "parts": parts,
        "seed": seed,
        "load": load,
        "longer": longer,
        "trainers": trainers,
        "head": not no_head,
        "slurm": [*pace.conf, f"KillWait={KILL_WAIT_S}"],
        "controller": dict(pace.controller),
    }
    machine = this_machine("mip")
    run = quicker(stream, QUICKER) if quick else stream
    measured = measure(run, nodes, trainers, pace, out / "logs", progress(), gpus, parts)
    figures = figures_of(measured)
    texts = [_title(asked), *rendered(measured, figures)]
    found = findings(machine, *texts, settings=asked, **document(measured, figures))
    replace_file(out / "table.txt", found.text + "\n")
    replace_file(out / "results.json", json_text(found.document) + "\n")
    return found


def parts_of(gpus: int) -> list[int]:
    """Return the GPUs of an element of each trainer: some of them fill whatever a node has free.

    One trainer has at most one element on a node.
    """
    if gpus < 2:
        return [1] * gpus
    return [gpus // 2, *parts_of(gpus - gpus // 2)]


def _title(asked: dict[str, Any]) -> str:
    controller = ", ".join(f"{key}={value}" for key, value in asked["controller"].items())
    gpus = f" of {asked['gpus']} GPUs" if asked["gpus"] else ""
    parts = f" with {', '.join(map(str, asked['parts']))} GPUs of a node" * bool(asked["parts"])
    longer = f", jobs {asked['longer']} times as long" * (asked["longer"] > 1)
    head = "" if asked["head"] else ", no job of all nodes"
    return (
        f"{asked['jobs']} ordinary jobs on {asked['nodes']} nodes{gpus}, seed {asked['seed']}, "
        f"load {asked['load']:g}{longer}{head}; trainers: {asked['trainers']}{parts}\n"
        f"Slurm: {', '.join(asked['slurm'])}; controller: {controller or 'its defaults'}"
    )
