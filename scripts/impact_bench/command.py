"""The command line of ``scripts/bench-impact``: what is run, and where the results go."""

from __future__ import annotations

import json
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import click

from scripts.benchmark.machine import this_machine
from scripts.impact_bench import figures, picture, table
from scripts.impact_bench.bench import Measured, measure
from scripts.impact_bench.causes import causes
from scripts.impact_bench.document import document
from scripts.impact_bench.stream import made_stream
from scripts.impact_bench.trainers import Kind
from scripts.labcluster.cluster import LabError


@click.command()
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=10_000),
    default=300,
    show_default=True,
    help="How many ordinary jobs, on each side.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=2, max=64),
    default=8,
    show_default=True,
    help="Of the private cluster; all are this host.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the stream of jobs.")
@click.option(
    "--chunk",
    type=click.IntRange(min=1, max=1000),
    default=30,
    show_default=True,
    metavar="JOBS",
    help="How many jobs run before the other side has its turn.",
)
@click.option(
    "--load",
    type=click.FloatRange(min=0.05, max=0.95),
    default=0.6,
    show_default=True,
    help="Node-seconds that jobs ask for, of those that there are while they arrive.",
)
@click.option("--hostile", is_flag=True, help="Trainers that do all not to be ended.")
@click.option(
    "--reserve",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The controller's reserve_nodes: idle nodes that are left to ordinary jobs.",
)
@click.option(
    "--null", is_flag=True, help="No trainers on either side: what this cannot tell apart."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every single job.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench-impact-output"),
    show_default=True,
    help="For the table, the JSON, the figure and the daemons' logs; kept up to date.",
)
def bench_impact(
    jobs: int,
    nodes: int,
    seed: int,
    chunk: int,
    load: float,
    hostile: bool,
    reserve: int,
    null: bool,
    as_json: bool,
    out: Path,
) -> None:
    """Measure what trainers cost ordinary jobs, on a private Slurm cluster on this machine.

    The same stream of ordinary jobs runs without trainers and with trainers on all idle nodes,
    chunk by chunk in turns. About half an hour a side for 300 jobs.

    \b
    Examples:
      scripts/bench-impact --jobs 30
      scripts/bench-impact --hostile --out /var/tmp/hostile
    """
    signal.signal(signal.SIGTERM, _interrupt)
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
    machine = f"{this_machine()}, torch {version('torch')}"
    out.mkdir(parents=True, exist_ok=True)
    stream = made_stream(jobs, nodes, seed, chunk, load)
    kind = None if null else Kind(hostile, reserve)
    measured: Measured | None = None
    try:
        for measured in measure(stream, nodes, kind, out / "logs", _Teller()):
            _write(out, machine, settings, measured)
    except (LabError, TimeoutError) as error:
        raise click.ClickException(str(error)) from error
    assert measured is not None
    courses = causes(measured)
    (out / "causes.txt").write_text(courses + "\n")
    if as_json:
        click.echo(json.dumps(document(machine, settings, measured), indent=2))
        return
    click.echo(f"{_title(machine, settings)}\n\n{table.rendered(measured)}\n\n{courses}")


def _write(out: Path, machine: str, settings: dict[str, Any], measured: Measured) -> None:
    """Write what there is so far: a run takes an hour, and may be stopped."""
    text = f"{_title(machine, settings)}\n\n{table.rendered(measured)}\n"
    (out / "table.txt").write_text(text)
    found = document(machine, settings, measured)
    (out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    off_s, on_s = figures.delays(measured.off.chunks, measured.on.chunks)
    if off_s:
        (out / "impact.svg").write_text(picture.picture(off_s, on_s))


def _title(machine: str, settings: dict[str, Any]) -> str:
    return (
        f"{machine}\n{settings['jobs']} ordinary jobs on {settings['nodes']} nodes, "
        f"seed {settings['seed']}, in chunks of {settings['chunk']}, "
        f"load {settings['load']:g}; trainers: {settings['trainers']}; "
        f"nodes in reserve: {settings['reserve']}"
    )


class _Teller:
    """Says on standard error how far it is, with the seconds since it began."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def __call__(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._begun_s:6.0f} s  {text}", err=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Take SIGTERM as Ctrl-C, so that all that was started is ended."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command."""
    sys.exit(bench_impact())
