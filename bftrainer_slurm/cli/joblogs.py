"""What ``assess`` and ``replay`` read: a log, made up or not, and trainers; how far they are."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bftrainer_slurm.cli.common import NO_ANSWER, fail, fail_on, safe
from bftrainer_slurm.replay.logs.jobs import LogError, Notes
from bftrainer_slurm.replay.logs.log import Log, LogOptions, read_log
from bftrainer_slurm.replay.logs.sacct import COLUMNS, FLAGS
from bftrainer_slurm.replay.synthetic.schedule import simulate
from bftrainer_slurm.replay.synthetic.workload import WorkloadError, parse_synthetic
from bftrainer_slurm.replay.trainers import (
    TrainersError,
    TrainerSpec,
    read_trainers,
    typical_trainers,
)
from bftrainer_slurm.slurm import accounting
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.words import counted


def read_file(log: Path, options: LogOptions) -> Log:
    """Read a file; end the command if it holds no log."""
    try:
        with fail_on(LogError), progress("reading", log.stat().st_size) as bar:
            return read_log(log, options, bar.update)
    except OSError as error:
        fail(f"{error.filename or log}: {error.strerror or error}")


def ask_slurm(options: LogOptions, days: float) -> Log:
    """Return the log of this cluster, from Slurm's accounting."""
    runner, hours = SlurmRunner(timeout_s=accounting.PATIENCE_S), max(1, round(24 * days))
    now_s = time.time()
    with TemporaryDirectory() as folder:
        jobs, down, reserved = (Path(folder) / name for name in ("sacct", "events", "reservations"))
        try:
            jobs.write_bytes(accounting.jobs(runner, hours, f"{FLAGS} --format={COLUMNS}").encode())
            down.write_bytes(accounting.node_events(runner, hours).encode())
            reserved.write_bytes(accounting.reservations(runner, hours).encode())
            nodes = accounting.node_names(runner)
        except GatewayError as error:
            fail(f"{error}; give a LOG, as docs/planner-guide.md says", NO_ANSWER)
        from_s = now_s - 3600.0 * hours
        asked = replace(options, node_list=nodes, down=down, reservations=reserved)
        return read_file(jobs, replace(asked, from_s=from_s, to_s=now_s))


def synthetic_log(text: str, days: float, min_hole_s: float) -> Log:
    """Return the log of a made-up cluster."""
    try:
        workload = parse_synthetic(text, days)
        if on_terminal():
            click.echo(f"making up a cluster of {counted(workload.nodes, 'node')} ...", err=True)
        return simulate(workload, min_hole_s)
    except WorkloadError as error:
        fail(f"--synthetic {safe(text)}: {error}")


def print_notes(notes: Notes | None) -> None:
    """Print which lines could not be read."""
    if notes is None or not notes.malformed:
        return
    click.echo(f"skipped {counted(notes.malformed, 'line')} that could not be read:", err=True)
    for line in notes.bad_lines:
        click.echo(f"  line {line.number}: {safe(line.why)}: {safe(line.text)}", err=True)
    if notes.malformed > len(notes.bad_lines):
        click.echo(f"  and {notes.malformed - len(notes.bad_lines):,} more", err=True)


def on_terminal() -> bool:
    """Return whether somebody sees how far the work is."""
    return sys.stderr.isatty()


def progress(label: str, length: int) -> AbstractContextManager[Any]:
    """Return click's bar for a long piece of work; only a terminal shows it."""
    hidden = not (length and on_terminal())
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=hidden)


def read_listed(path: Path | None, at_once: int) -> tuple[TrainerSpec, ...]:
    """Return the trainers in a file; without a file typical ones, ``at_once`` of them."""
    with fail_on(TrainersError, begin="--trainers "):
        return read_trainers(path) if path else typical_trainers(at_once)
