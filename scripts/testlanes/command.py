"""The command line of ``scripts/lanes``, and what it prints."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.testlanes.catalogue import LANES, Lane
from scripts.testlanes.run import Run, run

_REPO = Path(__file__).resolve().parent.parent.parent
_LOGS = _REPO / "build" / "lanes"
_RESULTS = re.compile(r"^([.FEsxX]+)(?= |$)", re.MULTILINE)


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
        done = run(chosen(names), at_once, _LOGS, tell_start, show, tell_course)
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


def tell_start(one: Run) -> None:
    """Print that a lane has started."""
    click.echo(f"started {one.lane.name}")


def tell_course(running: Sequence[Run]) -> None:
    """Print how many results there are of all that run."""
    click.echo(f"{time.strftime('%H:%M')} " + ", ".join(map(course, running)))


def course(one: Run) -> str:
    """Return how many results a lane has, as pytest shows them: a character each."""
    return f"{one.lane.name} {sum(map(len, _RESULTS.findall(one.text)))}"


def show(one: Run) -> None:
    """Print all that a lane has said."""
    outcome = "passed" if one.code == 0 else f"FAILED with exit code {one.code}"
    cost = f"{clock(one.wall_s)}, {clock(one.processor_s)} of a processor"
    click.echo(f"\n==== {one.lane.name} {outcome} after {cost}\n{one.text}")


def table(done: Sequence[Run], wall_s: float) -> str:
    """Return a line for each lane, and the sum as pytest says it."""
    total: Counter[str] = Counter()
    lines = [
        f"{'lane':<10} {'passed':>7} {'failed':>7} {'skipped':>7} {'time':>7} {'processor':>10}"
    ]
    for one in done:
        counts = one.counts
        total += counts
        lines.append(
            f"{one.lane.name:<10} {counts['passed']:>7} {counts['failed']:>7}"
            f" {counts['skipped']:>7} {clock(one.wall_s):>7} {clock(one.processor_s):>10}"
            + (f"  FAILED with exit code {one.code}" if one.code else "")
        )
    lines.append(", ".join(f"{total[word]} {word}" for word in ("passed", "failed", "skipped")))
    return "\n".join([*lines[:-1], f"{lines[-1]} in {clock(wall_s)}"])


def clock(seconds: float) -> str:
    """Return a time as MINUTES:SECONDS."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
