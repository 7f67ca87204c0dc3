"""The command line of ``scripts/run exactly-once``: which ways of training, under which changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.benchkit.command import (
    Findings,
    bench_command,
    findings,
    folder,
    number,
    progress,
    several,
)
from scripts.benchkit.machine import this_machine
from scripts.exactly_once import report
from scripts.exactly_once.account import account
from scripts.exactly_once.report import Result
from scripts.exactly_once.series import CHANGES, MOST_NODES, Change, series
from scripts.exactly_once.training import Size, StuckError, train
from scripts.exactly_once.ways import UNCHANGED, WAYS, Way
from scripts.labcluster.lab import Tell


@bench_command(TimeoutError)
@several("--way", "names", WAYS, "Try only this way of training.")
@several("--change", "kinds", CHANGES, "Let only these changes come.")
@folder("--records", "records", "Keep there what the processes write down and print.")
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
) -> Findings:
    """Count how often each sample is trained while nodes join, leave, are reclaimed and killed.

    Up to three nodes, each a torchrun agent with one training process, on gloo, on this host. The
    first row is plain DDP on one node that stays.

    \b
    Examples:
      scripts/run exactly-once --way ddp --way trainer
      scripts/run exactly-once --rounds 3 --seed 7 --samples 9600
      scripts/run exactly-once --way huggingface --change join --change leave
    """
    machine = this_machine("torch")
    size = Size(samples, epochs, batch=8, save_every=10, compute_s=compute)
    coming = series(seed, rounds, kinds)
    results = [_result(UNCHANGED, size, [], progress("unchanged: "), records)]
    for name in names:
        way = WAYS[name]
        if way.is_here:
            results.append(_result(way, size, coming, progress(f"{name}: "), records))
    changes = ", ".join(one.kind for one in coming)
    head = f"{samples:,} samples, {epochs} epochs, 8 a rank; changes: {changes or 'none'}"
    held = report.targets(results, MOST_NODES * size.batch)
    text = report.rows(results)
    return findings(machine, head, text, targets=held, results=results)


def _result(
    way: Way, size: Size, changes: Sequence[Change], tell: Tell, records: Path | None
) -> Result:
    try:
        found = train(way, size, changes, tell, records and records / way.name)
    except StuckError as error:
        return Result(way, [], None, wrong=str(error))
    told = account(found.steps, found.thrown_away, size.samples, size.epochs, found.loss)
    return Result(way, found.changes, told, found.said)
