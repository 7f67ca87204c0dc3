"""The command line of ``scripts/run bench-elastic``: what is measured, and how often."""

from __future__ import annotations

from collections.abc import Sequence

import click

from scripts.benchkit.command import Findings, bench_command, progress
from scripts.benchkit.machine import this_machine
from scripts.elastic_bench import report
from scripts.elastic_bench.fleet import Training
from scripts.elastic_bench.measure import NotSettledError, measure
from scripts.elastic_bench.setups import SETUPS

# The processor is free for so long in each step, as beside an accelerator.
_COMPUTE_S = 0.02
# Seconds between the unchanged script's checkpoints: a small one costs next to nothing.
_SAVE_EVERY_S = {"tiny": 0.0, "large": 10.0}


@bench_command(NotSettledError, TimeoutError)
@click.option(
    "--model",
    "models",
    type=click.Choice(list(_SAVE_EVERY_S)),
    multiple=True,
    default=("tiny",),
    help="9,610 parameters, or 25 million; may be given twice.",
)
@click.option(
    "--setup",
    "names",
    type=click.Choice(list(SETUPS)),
    multiple=True,
    default=tuple(SETUPS),
    help="Measure only this one; may be given again.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1, max=1000),
    default=10,
    help="How often a node is killed, leaves and is reclaimed; one joins after each.",
)
def main(models: Sequence[str], names: Sequence[str], repeat: int) -> Findings:
    """Measure how long trainers stand still as nodes come and go, on this machine.

    Four nodes, each a torchrun agent with one training process, on gloo. Stock c10d as an element
    tunes it, our rendezvous handler with the same script, and a script that rescales in process.

    \b
    Examples:
      scripts/run bench-elastic --repeat 3 --setup handler
      scripts/run bench-elastic --model large
    """
    machine = this_machine("mip", "torch")
    setups = [SETUPS[name] for name in dict.fromkeys(names)]
    training = {name: Training(name, _COMPUTE_S, often) for name, often in _SAVE_EVERY_S.items()}
    pauses = {
        model: [
            measure(setup, training[model], repeat, progress(f"{model} model, {setup.title}: "))
            for setup in setups
        ]
        for model in dict.fromkeys(models)
    }
    parts = [str(machine), *(report.pauses(model, found) for model, found in pauses.items())]
    targets = {model: report.targets(model, found) for model, found in pauses.items()}
    document = {"machine": machine, "pauses": pauses, "targets": targets}
    return Findings("\n\n".join(parts), document)
