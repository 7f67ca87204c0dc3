"""The command line of ``scripts/run fuzz``: what is fuzzed, for how long, and the table."""

from __future__ import annotations

from collections.abc import Sequence

import click

from scripts.benchkit.command import Findings, bench_command, progress
from scripts.benchkit.text import table
from scripts.fuzzing.campaign import Outcome, fuzz
from scripts.fuzzing.catalogue import BY_NAME
from scripts.fuzzing.native import BuildError

_HEADING = ("TARGET", "WHAT", "EXECUTIONS", "A SECOND", "COVERED", "CRASH")


@bench_command(BuildError)
@click.option(
    "--seconds", type=click.FloatRange(min=1, max=86_400), default=60.0, help="For each target."
)
@click.option(
    "--target",
    "names",
    type=click.Choice(list(BY_NAME)),
    multiple=True,
    help="Fuzz only this one; may be given again.  [default: all]",
)
@click.option("--seed", type=click.IntRange(min=0, max=2**31), default=0, metavar="SEED")
@click.option("--grow", is_flag=True, help="Keep in tests/fuzz/corpus what reaches more code.")
def main(seconds: float, names: Sequence[str], seed: int, grow: bool) -> Findings:
    """Feed what parses users' and strangers' texts with inputs that nobody would send.

    Inputs are guided by coverage. Targets in C run with the address and the undefined-behaviour
    sanitizer; without clang their inputs are changed blindly. Inputs that break a target are kept
    in build/fuzz/crashes, and the exit code is 1.

    \b
    Examples:
      scripts/run fuzz --seconds 600
      scripts/run fuzz --target conversation --seconds 3600 --seed 7 --grow
    """
    tell = progress()
    outcomes = []
    for name in dict.fromkeys(names or BY_NAME):
        outcomes.append(one := fuzz(BY_NAME[name], seconds, seed, grow))
        tell("\n".join(filter(None, (f"{name}: {one.executions:,} executions", one.said))))
    broken = [one.target for one in outcomes if one.crash is not None or one.said]
    text = table([_HEADING, *map(_row, outcomes)], "<<>>>>")
    return Findings(text, outcomes, f"broken: {', '.join(broken)}" if broken else "")


def _row(one: Outcome) -> tuple[str, ...]:
    rate = one.executions / one.seconds if one.seconds else 0.0
    covered = "-" if one.covered is None else f"{one.covered:,}"
    broken = str(one.crash) if one.crash else "yes" if one.said else "-"
    what = BY_NAME[one.target].what
    return (one.target, what, f"{one.executions:,}", f"{rate:,.0f}", covered, broken)
