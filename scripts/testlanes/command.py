"""The command line of ``scripts/lanes``, and what it prints."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from scripts.benchkit.text import columns
from scripts.testlanes.catalogue import LANES, Lane
from scripts.testlanes.run import Run, clock, run

_REPO = Path(__file__).resolve().parent.parent.parent
_LOGS = _REPO / "build" / "lanes"


@click.command()
@click.argument("names", nargs=-1, metavar="[LANE]...")
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How many run side by side.",
)
def lanes(names: Sequence[str], at_once: int) -> None:
    """Run the checks and tests in lanes, side by side and apart from each other.

    All that need no more than this host's Slurm, unless lanes are named; 'all' are those and the
    newer Slurms. The output of a lane is shown when it ends. The exit code is that of the first
    one that failed.
    """
    if os.getuid() != 0:
        at_once = 1  # nothing keeps them apart
    os.chdir(_REPO)
    _LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin_s = time.monotonic()
    try:
        done = run(chosen(names), at_once, _LOGS, click.echo)
    except KeyboardInterrupt:
        click.echo("lanes: interrupted", err=True)
        sys.exit(128 + signal.SIGINT)
    click.echo(table(done, time.monotonic() - begin_s))
    sys.exit(next((one.code for one in done if one.code != 0), 0))


def chosen(names: Sequence[str]) -> list[Lane]:
    """Return the lanes that these words mean, in the order in which they start.

    Raises:
        click.BadParameter: there is no such lane.
    """
    known = {lane.name for lane in LANES}
    for name in names:
        if name not in known | {"all"}:
            raise click.BadParameter(
                f"no lane '{name}'; there are: {', '.join(sorted(known))}, all"
            )
    if "all" in names:
        return list(LANES)
    return [lane for lane in LANES if (lane.name in names if names else not lane.matrix)]


def table(done: Sequence[Run], wall_s: float) -> str:
    """Return a line for each lane, and the sum as pytest says it."""
    counted = [(word, _counted(word)) for word in ("passed", "failed", "skipped")]
    cells: list[tuple[str, Callable[[Run], str]]] = [
        ("lane", lambda one: one.lane.name),
        *counted,
        ("time", lambda one: clock(one.wall_s)),
        ("processor", lambda one: clock(one.processor_s)),
        ("", lambda one: one.outcome),
    ]
    total = [f"{sum(int(count(one)) for one in done)} {word}" for word, count in counted]
    return f"{columns(done, cells)}\n{', '.join(total)} in {clock(wall_s)}"


def _counted(word: str) -> Callable[[Run], str]:
    return lambda one: str(one.counts[word])
