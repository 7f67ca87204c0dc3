"""The command line of ``scripts/run exactly-once``: which ways of training, under which changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.benchkit.command import (
    Findings,
    bench_command,
    findings,
    folder,
    number,
    progress,
    replace_file,
    several,
)
from scripts.benchkit.machine import this_machine
from scripts.exactly_once import report
from scripts.exactly_once.account import Step, account
from scripts.exactly_once.report import Result
from scripts.exactly_once.training import Size, StuckError, train
from scripts.exactly_once.ways import CHANGES, MOST_NODES, UNCHANGED, WAYS, Change, Way, series


@bench_command(TimeoutError)
@several("--way", "names", WAYS, "Try only this way of training.")
@several("--change", "kinds", CHANGES, "Let only these changes come.")
@folder("--records", "records", "Where to keep what the processes write down and print.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Renew the rows of this page's table.",
)
@number("--seed", *(1, 0, 1_000_000), "Of the order of changes.")
@number("--rounds", *(1, 0, 100), "How often each kind of change comes.")
@number("--samples", *(960, 96, 10_000_000), "In an epoch; multiples of 96 fit all sizes.")
@number("--epochs", *(2, 1, 1000))
@number("--compute", *(0.05, 0.0, 10.0), "Seconds of a step.")
def main(
    names: Sequence[str],
    kinds: Sequence[str],
    seed: int,
    rounds: int,
    samples: int,
    epochs: int,
    compute: float,
    records: Path | None,
    page: Path | None,
) -> Findings:
    """Count how often each sample is trained while nodes join, leave, are reclaimed and killed.

    Up to three nodes, each a torchrun agent with one training process, on gloo, on this host. The
    first row is plain DDP on one node that stays.

    \b
    Examples:
      scripts/run exactly-once --way ddp --way huggingface
      scripts/run exactly-once --rounds 3 --seed 7 --samples 9600
      scripts/run exactly-once --way huggingface --change join --change leave
      scripts/run exactly-once --page docs/internals/bench-frameworks.md
    """
    machine = this_machine("torch")
    size = Size(samples, epochs, batch=8, save_every=10, compute_s=compute)
    coming = series(seed, rounds, kinds)
    results: list[Result] = []
    course: list[Step] = []
    for way in (UNCHANGED, *(WAYS[name] for name in names)):
        if not way.is_here:
            continue
        changes = [] if way is UNCHANGED else coming
        result, steps = _result(way, size, changes, course, records)
        results.append(result)
        course = course or steps
        if page is not None:
            made = f"{machine.date}, seed {seed}, load {os.getloadavg()[0]:.0f}"
            titles = [one.title for one in (UNCHANGED, *WAYS.values())]
            text = report.renewed(page.read_text(encoding="utf-8"), [result], made, titles)
            replace_file(page, text)
    come = ", ".join(one.kind for one in coming)
    head = f"{samples:,} samples, {epochs} epochs, 8 a rank; changes: {come or 'none'}"
    held = report.targets(results, MOST_NODES * size.batch)
    return findings(machine, head, report.rows(results), targets=held, results=results)


def _result(
    way: Way,
    size: Size,
    changes: Sequence[Change],
    course: Sequence[Step],
    records: Path | None,
) -> tuple[Result, list[Step]]:
    """Train one way, and return its own steps too; ``course``: those of the unchanged run."""
    tell = progress(f"{way.name}: ")
    try:
        found = train(way, size, changes, tell, records and records / way.name)
    except StuckError as error:
        return Result(way, [], None, wrong=str(error)), []
    asked_steps = size.steps // 2 if way.steps else 0
    outcome = account(
        *(found.steps, found.thrown_away, size.samples, size.epochs, found.loss),
        *(course, asked_steps, found.planned),
    )
    global_batch = MOST_NODES * size.batch
    changes_made = [kind for _, kind in found.changes]
    result = Result(way, changes_made, outcome, found.said, "", asked_steps, global_batch)
    return result, found.steps
