"""The command line of ``scripts/bench-elastic``: what is measured, and how often."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType

import click

from scripts.benchmark.machine import this_machine
from scripts.elastic_bench import table
from scripts.elastic_bench.chaos import Chaos, run_chaos
from scripts.elastic_bench.document import document
from scripts.elastic_bench.endtoend import EndToEnd, measure_cluster
from scripts.elastic_bench.fleet import Training
from scripts.elastic_bench.measure import Measured, NotSettledError, measure
from scripts.elastic_bench.setups import SETUPS

# The processor is free for so long in each step, as beside an accelerator.
_COMPUTE_S = 0.02
# Seconds between the unchanged script's checkpoints: a small one costs next to nothing.
_SAVE_EVERY_S = {"tiny": 0.0, "large": 10.0}


@click.command()
@click.option(
    "--model",
    "models",
    type=click.Choice(list(_SAVE_EVERY_S)),
    multiple=True,
    default=("tiny",),
    show_default=True,
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
    show_default=True,
    help="How often a node is killed, leaves and is reclaimed; one joins after each.",
)
@click.option(
    "--chaos",
    "events",
    type=click.IntRange(min=0, max=100_000),
    default=200,
    show_default=True,
    metavar="EVENTS",
    help="Random kills, joins and leaves in a row, with the tiny model.",
)
@click.option(
    "--pace",
    "pace_s",
    type=click.FloatRange(min=0.1, max=60),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two of them, on average.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random events.")
@click.option(
    "--cluster",
    "rounds",
    type=click.IntRange(min=0, max=100),
    default=0,
    show_default=True,
    metavar="ROUNDS",
    help="End to end on a private Slurm cluster of four nodes, so often.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every single time.")
def bench_elastic(
    models: Sequence[str],
    names: Sequence[str],
    repeat: int,
    events: int,
    pace_s: float,
    seed: int,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure how long trainers stand still as nodes come and go, on this machine.

    Four nodes, each a torchrun agent with one training process, on gloo. Stock c10d as an element
    tunes it, our rendezvous handler with the same script, and a script that rescales in process.

    \b
    Examples:
      scripts/bench-elastic --repeat 3 --chaos 0 --setup handler
      scripts/bench-elastic --model large --chaos 0
      scripts/bench-elastic --repeat 0 --chaos 0 --cluster 3
    """
    signal.signal(signal.SIGTERM, _interrupt)
    machine = f"{this_machine()}, torch {version('torch')}"
    setups = [SETUPS[name] for name in dict.fromkeys(names)]
    pauses: dict[str, list[Measured]] = {}
    chaos: list[Chaos] = []
    for model in dict.fromkeys(models) if repeat else ():
        training = Training(model, _COMPUTE_S, _SAVE_EVERY_S[model])
        pauses[model] = [
            measure(setup, training, repeat, _Teller(f"{model} model, {setup.title}"))
            for setup in setups
        ]
    if events:
        training = Training("tiny", _COMPUTE_S, _SAVE_EVERY_S["tiny"])
        for setup in setups:
            tell = _Teller(f"chaos, {setup.title}")
            try:
                chaos.append(run_chaos(setup, training, events, pace_s, seed, tell))
            except NotSettledError as error:
                raise click.ClickException(f"{setup.title}: {error}") from error
    cluster: list[EndToEnd] = []
    if rounds:
        cluster = measure_cluster(setups, rounds, _Teller("cluster"))
    if as_json:
        click.echo(json.dumps(document(machine, pauses, chaos, cluster), indent=2))
        return
    parts = [machine, *(table.pauses(model, found) for model, found in pauses.items())]
    parts += [table.chaos(chaos)] if chaos else []
    parts += [table.cluster(cluster)] if cluster else []
    click.echo("\n\n".join(parts))


class _Teller:
    """Says on standard error how far it is, with the seconds since it began."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun_s = time.monotonic()

    def __call__(self, text: str) -> None:
        seconds = time.monotonic() - self._begun_s
        click.echo(f"{seconds:6.0f} s  {self._what}: {text}", err=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Take SIGTERM as Ctrl-C, so that all that was started is ended."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command."""
    sys.exit(bench_elastic())
