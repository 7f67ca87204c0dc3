"""The command line of ``scripts/run lanes``, and what it prints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import click

from scripts.benchkit.command import Findings, bench_command
from scripts.benchkit.text import columns
from scripts.labcluster.stage import REPO
from scripts.testlanes.catalogue import LANES, Lane
from scripts.testlanes.run import Run, clock, run

_LOGS = REPO / "build" / "lanes"


@bench_command()
@click.argument("names", nargs=-1, metavar="[LANE]...")
@click.option("--at-once", type=click.IntRange(min=1), default=5, help="How many run side by side.")
def main(names: Sequence[str], at_once: int) -> Findings:
    """Run the checks and tests in lanes, side by side and apart from each other.

    All that need no more than this host's Slurm, unless lanes are named; 'all' are those and the
    newer Slurms. The output of a lane is shown when it ends.
    """
    if os.getuid() != 0:
        at_once = 1  # nothing keeps them apart
    os.chdir(REPO)
    _LOGS.mkdir(parents=True, exist_ok=True)
    begin_s = time.monotonic()
    done = run(chosen(names), at_once, _LOGS, click.echo)
    failed = [one.lane.name for one in done if one.code]
    codes = {one.lane.name: one.code for one in done}
    wrong = f"failed: {', '.join(failed)}" if failed else ""
    return Findings(table(done, time.monotonic() - begin_s), codes, wrong)


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
