"""The command line of ``scripts/bench-elastic``: what is measured, and how often."""

from __future__ import annotations

from collections.abc import Sequence

import click

from scripts.benchkit.command import Findings, bench_command, progress
from scripts.benchkit.machine import this_machine
from scripts.elastic_bench import report
from scripts.elastic_bench.endtoend import measure_cluster
from scripts.elastic_bench.fleet import Training
from scripts.elastic_bench.measure import NotSettledError, measure
from scripts.elastic_bench.setups import SETUPS
from scripts.labcluster.cluster import LabError

# The processor is free for so long in each step, as beside an accelerator.
_COMPUTE_S = 0.02
# Seconds between the unchanged script's checkpoints: a small one costs next to nothing.
_SAVE_EVERY_S = {"tiny": 0.0, "large": 10.0}


@bench_command(LabError, NotSettledError, TimeoutError)
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
    type=click.IntRange(min=0, max=1000),
    default=10,
    help="How often a node is killed, leaves and is reclaimed; one joins after each.",
)
@click.option(
    "--cluster",
    "rounds",
    type=click.IntRange(min=0, max=100),
    default=0,
    metavar="ROUNDS",
    help="End to end on a private Slurm cluster of four nodes, so often.",
)
def main(
    models: Sequence[str],
    names: Sequence[str],
    repeat: int,
    rounds: int,
) -> Findings:
    """Measure how long trainers stand still as nodes come and go, on this machine.

    Four nodes, each a torchrun agent with one training process, on gloo. Stock c10d as an element
    tunes it, our rendezvous handler with the same script, and a script that rescales in process.

    \b
    Examples:
      scripts/bench-elastic --repeat 3 --setup handler
      scripts/bench-elastic --model large
      scripts/bench-elastic --repeat 0 --cluster 3
    """
    machine = this_machine("mip", "torch")
    setups = [SETUPS[name] for name in dict.fromkeys(names)]
    training = {name: Training(name, _COMPUTE_S, often) for name, often in _SAVE_EVERY_S.items()}
    pauses = {
        model: [
            measure(setup, training[model], repeat, progress(f"{model} model, {setup.title}: "))
            for setup in setups
        ]
        for model in (dict.fromkeys(models) if repeat else ())
    }
    cluster = measure_cluster(setups, rounds, progress("cluster: ")) if rounds else []
    parts = [str(machine), *(report.pauses(model, found) for model, found in pauses.items())]
    parts += [report.cluster(cluster)] if cluster else []
    return Findings("\n\n".join(parts), report.document(machine, pauses, cluster))
