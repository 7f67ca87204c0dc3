"""The command line of ``scripts/run launch-corpus``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from scripts.benchkit.command import Findings, bench_command, findings, progress
from scripts.benchkit.machine import this_machine
from scripts.benchkit.text import columns
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import started_site
from scripts.launch_corpus.runner import SETTINGS, Outcome, run_all, shapes

NODES = 3  # of the cluster, and of each trainer at most
_SHAPES = shapes()


@bench_command(LabError, TimeoutError)
@click.argument("names", nargs=-1, type=click.Choice(list(_SHAPES)), metavar="[SHAPE]...")
def main(names: Sequence[str]) -> Findings:
    """Run batch scripts, as people write them, as trainers on a private Slurm cluster.

    Each must form one group on all nodes, and go on as one group when an ordinary job takes the
    node of rank 0. The output of a script that can never be elastic must say why. Runs all
    scripts of scripts/launch_corpus/corpus unless some are named.
    """
    chosen = [_SHAPES[name] for name in names or _SHAPES]
    machine = this_machine("torch", "accelerate", "lightning")
    with started_site(NODES, SETTINGS) as site:
        outcomes = run_all(site, chosen, NODES, progress())
    bad = [one.shape.name for one in outcomes if one.wrong]
    wrong = f"not as they should be: {', '.join(bad)}" if bad else ""
    return findings(machine, table(outcomes), wrong=wrong, nodes=NODES, shapes=outcomes)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each shape."""

    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:.1f} s"

    return columns(
        outcomes,
        (
            ("launcher", lambda one: one.shape.launcher),
            ("shape", lambda one: one.shape.name),
            ("", lambda one: one.wrong or ("message" if one.shape.message else "one group")),
            ("processes", lambda one: str(one.processes or "")),
            ("joined", lambda one: seconds(one.joined_s)),
            ("went on", lambda one: seconds(one.went_on_s)),
            ("message", lambda one: seconds(one.message_s)),
        ),
        align="<<<",
    )
