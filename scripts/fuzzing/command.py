"""The command line of ``scripts/fuzz``: what is fuzzed, for how long, and the table."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict
from types import FrameType

import click

from scripts.fuzzing.campaign import Outcome, fuzz
from scripts.fuzzing.catalogue import BY_NAME, TARGETS
from scripts.fuzzing.native import BuildError

_HEADING = ("TARGET", "WHAT", "EXECUTIONS", "A SECOND", "COVERED", "CRASH")


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=86_400),
    default=60.0,
    show_default=True,
    help="For each target.",
)
@click.option(
    "--target",
    "names",
    type=click.Choice(list(BY_NAME)),
    multiple=True,
    help="Fuzz only this one; may be given again.  [default: all]",
)
@click.option(
    "--seed", type=click.IntRange(min=0, max=2**31), default=0, show_default=True, metavar="SEED"
)
@click.option("--grow", is_flag=True, help="Keep in tests/fuzz/corpus what reaches more code.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(seconds: float, names: Sequence[str], seed: int, grow: bool, as_json: bool) -> None:
    """Feed what parses users' and strangers' texts with inputs that nobody would send.

    Targets in C run with the address and the undefined-behaviour sanitizer. With clang and atheris
    inputs are guided by coverage, without them changed blindly. Inputs that break a target are
    kept in build/fuzz/crashes, and the exit code is 1.

    \b
    Examples:
      scripts/fuzz --seconds 600
      scripts/fuzz --target conversation --seconds 3600 --seed 7 --grow
    """
    signal.signal(signal.SIGTERM, _interrupt)
    outcomes = []
    for target in [BY_NAME[name] for name in dict.fromkeys(names)] or TARGETS:
        try:
            outcomes.append(fuzz(target, seconds, seed, grow))
        except BuildError as error:
            raise click.ClickException(f"{target.name}: {error}") from error
        if not as_json:
            click.echo(_told(outcomes[-1]), err=True)
    broken = [one for one in outcomes if one.crash is not None or one.said]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in outcomes], indent=2, default=str))
    else:
        click.echo(table(outcomes))
    raise SystemExit(1 if broken else 0)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return what came of each target, in columns."""
    rows = [_HEADING, *(_row(one) for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADING))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(one: Outcome) -> tuple[str, ...]:
    rate = one.executions / one.seconds if one.seconds else 0.0
    covered = "-" if one.covered is None else f"{one.covered:,}"
    broken = str(one.crash) if one.crash else "yes" if one.said else "-"
    what = BY_NAME[one.target].what
    return (one.target, what, f"{one.executions:,}", f"{rate:,.0f}", covered, broken)


def _told(one: Outcome) -> str:
    return f"{one.target}: {one.executions:,} executions" + (f"\n{one.said}" if one.said else "")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Take SIGTERM as Ctrl-C, so that all that was started is ended."""
    raise KeyboardInterrupt
