"""The command line of ``scripts/run exactly-once``: which ways of training, under which changes."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.benchkit.command import Findings, bench_command, findings, number, progress, several
from scripts.benchkit.machine import this_machine
from scripts.elastic_bench.fleet import StuckError
from scripts.exactly_once import report
from scripts.exactly_once.account import Step, account
from scripts.exactly_once.report import Result
from scripts.exactly_once.training import Size, train
from scripts.exactly_once.ways import CHANGES, UNCHANGED, WAYS, Change, Way, series


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
    course: list[Step] = []
    for way in (UNCHANGED, *(WAYS[name] for name in names)):
        if not way.is_here:
            continue
        changes = [] if way is UNCHANGED else coming
        result, steps = _result(way, size, changes, course)
        results.append(result)
        course = course or steps
    come = ", ".join(one.kind for one in coming)
    head = f"{samples:,} samples, {epochs} epochs, 8 a rank; changes: {come or 'none'}"
    held = report.targets(results)
    return findings(machine, head, report.rows(results), targets=held, results=results)


def _result(
    way: Way, size: Size, changes: Sequence[Change], course: Sequence[Step]
) -> tuple[Result, list[Step]]:
    """Train one way, and return its own steps too; ``course``: those of the unchanged run."""
    tell = progress(f"{way.name}: ")
    try:
        found = train(way, size, changes, tell)
    except StuckError as error:
        return Result(way, [], None, wrong=str(error)), []
    asked_steps = size.steps // 2 if way.steps else 0
    outcome = account(
        *(found.steps, found.thrown_away, size.samples, size.epochs, found.loss),
        *(course, asked_steps, found.planned),
    )
    made = [kind for _, kind in found.changes]
    return Result(way, made, outcome, found.said, "", asked_steps), found.steps
