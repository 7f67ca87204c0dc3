"""The command line of ``scripts/run exactly-once``: which ways of training, under which changes."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.benchkit.command import Findings, bench_command, findings, number, progress, several
from scripts.benchkit.machine import this_machine
from scripts.exactly_once import report
from scripts.exactly_once.account import Trained
from scripts.exactly_once.report import Result
from scripts.exactly_once.training import Size, train
from scripts.exactly_once.ways import UNCHANGED, WAYS, series
from scripts.labcluster.fleet import CHANGES


@bench_command(TimeoutError)
@several("--way", "names", WAYS, "Try only this way of training.")
@several("--change", "kinds", CHANGES, "Let only these changes come.")
@number("--seed", *(1, 0, 1_000_000), "Of the order of changes.")
@number("--rounds", *(1, 0, 100), "How often each kind of change comes.")
@number("--samples", *(960, 96, 10_000_000), "In an epoch; multiples of 96 fit all sizes.")
@number("--epochs", *(2, 1, 1000))
def main(
    names: Sequence[str],
    kinds: Sequence[str],
    seed: int,
    rounds: int,
    samples: int,
    epochs: int,
) -> Findings:
    """Count how often each sample is trained while nodes join, leave, are reclaimed and killed.

    Up to three nodes, each a torchrun agent with one training process, on gloo, on this host. The
    first row is plain DDP on one node that stays.

    \b
    Examples:
      scripts/run exactly-once --way ddp --way huggingface
      scripts/run exactly-once --rounds 3 --seed 7 --samples 9600
      scripts/run exactly-once --way huggingface --change join --change leave
    """
    machine = this_machine("torch")
    size = Size(samples, epochs)
    coming = series(seed, rounds, kinds)
    results: list[Result] = []
    course: list[Trained] = []
    for way in (UNCHANGED, *(WAYS[name] for name in names)):
        if not way.is_here:
            continue
        changes = [] if way is UNCHANGED else coming
        result, steps = train(way, size, changes, course, progress(f"{way.name}: "))
        results.append(result)
        course = course or steps
    come = ", ".join(one.kind for one in coming)
    head = f"{samples:,} samples, {epochs} epochs, 8 a rank; changes: {come or 'none'}"
    held = report.targets(results)
    return findings(machine, head, report.rows(results), targets=held, results=results)
