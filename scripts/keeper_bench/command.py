"""The command line of ``scripts/run bench-keeper``: what a keeper bears, what floods cost."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from bftrainer_slurm.keeper.credentials import JOB, Means
from scripts.benchkit.command import Findings, bench_command, progress
from scripts.benchkit.machine import this_machine
from scripts.keeper_bench import scale
from scripts.keeper_bench.agents import cpu_s, many_files
from scripts.keeper_bench.flood import (
    ARRAY,
    FLOODER,
    FLOODERS_ARRAY,
    FLOODS,
    NODES,
    VICTIM,
    Rescales,
    flooded,
    rescales,
)
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.processes import daemon_of, prefer_session

SIZES = {"1x100": (1, 100), "1x1000": (1, 1_000), "1x4000": (1, 4_000), "300x8": (300, 8)}
PRIORITY = -10
_NODES = 512  # of the trainer that floods by changes


@dataclass(frozen=True, slots=True)
class Flooded:
    """How long one user's rescales took while another flooded this keeper, or one beside it."""

    kind: str
    here: Rescales
    elsewhere: Rescales
    keeper_share: float  # of a processor


@bench_command(TimeoutError, ChildProcessError)
@click.option(
    "--size",
    "sizes",
    type=click.Choice(list(SIZES)),
    multiple=True,
    default=("1x100", "1x1000", "300x8"),
    help="Trainers x simulated agents of each; may be given again.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=0, max=10_000),
    default=50,
    help="How often a trainer of four rescales during each flood: a loss and a join each time.",
)
def main(sizes: tuple[str, ...], repeat: int) -> Findings:
    """Measure how soon generations are formed, and how much another user's flood delays that.

    The agents are simulated: real connections and messages, no torchrun. Where the machine is busy,
    the keeper's own processor time says more than the seconds.
    """
    machine = this_machine()
    with many_files():
        scales = [_scale(*SIZES[size], progress(f"{size}: ")) for size in dict.fromkeys(sizes)]
        floods = _floods(repeat, progress("flood: ")) if repeat else []
    text = [str(machine), *map(_table, scales), *([_flood_table(floods)] if floods else [])]
    return Findings("\n\n".join(text), {"machine": machine, "scales": scales, "floods": floods})


def _scale(trainers: int, agents: int, say: Callable[[str], None]) -> scale.Scale:
    say("measures")
    with site_keeper() as (keeper, key):
        return asyncio.run(scale.measure(keeper, key.read_bytes(), trainers, agents))


def _floods(repeat: int, say: Callable[[str], None]) -> list[Flooded]:
    found = []
    with site_keeper() as (keeper, key), site_keeper() as (other, others_key):
        for one in (keeper, other):
            one.client.own(ARRAY, VICTIM, NODES)
            one.client.own(FLOODERS_ARRAY, FLOODER, _NODES)
        for kind in (*FLOODS, "all at once"):
            say(kind)
            with flooded(kind, other.address, others_key):
                elsewhere, _ = _rescales(keeper, key, repeat)
            with flooded(kind, keeper.address, key):
                here, share = _rescales(keeper, key, repeat)
            found.append(Flooded(kind, here, elsewhere, share))
    return found


def _rescales(keeper: Keeper, key: Path, repeat: int) -> tuple[Rescales, float]:
    pid = keeper.pid
    assert pid is not None
    began_s, used_s = time.monotonic(), cpu_s(pid)
    found = asyncio.run(rescales(keeper.address, key.read_bytes(), repeat))
    return found, (cpu_s(pid) - used_s) / (time.monotonic() - began_s)


@contextmanager
def site_keeper() -> Iterator[tuple[Keeper, Path]]:
    """Start a keeper of several users, without MUNGE, and return the site's key too.

    The processors prefer it: a controller's host is less busy than this one may be.
    """
    with tempfile.TemporaryDirectory(prefix="bftrainer-keeper-") as name:
        key = Path(name) / "site.key"
        key.touch(mode=0o600)
        key.write_text(os.urandom(32).hex())
        with started_keeper(Path(name), Means(JOB, key_file=key)) as keeper:
            if (process := daemon_of(keeper.pid or 0)) is not None:
                prefer_session(process, PRIORITY)
            yield keeper, key


def _table(found: scale.Scale) -> str:
    rows = [f"{found.trainers} x {found.agents} agents: wall, keeper's processor (s)"]
    rows += [f"  {one.what:<18}{one.wall_s:8.2f}{one.keeper_s:8.2f}" for one in found.steps]
    rows.append(f"  idle: {found.idle_share:.0%} of a processor; {found.memory_mb:.0f} MB more")
    if found.hung_up:
        rows.append(f"  {found.hung_up} times an agent was too slow, and hung up on")
    return "\n".join(rows)


def _flood_table(found: list[Flooded]) -> str:
    rows = ["rescale of 4 nodes while another user floods another keeper, and this one (ms)"]
    rows.append(f"  {'flood':<16}{'median':>8}{'95 %':>8}{'median':>12}{'95 %':>8}{'keeper':>10}")
    for one in found:
        (typical, late), (here, here_late) = map(_quantiles, (one.elsewhere, one.here))
        row = f"  {one.kind:<16}{typical:8.1f}{late:8.1f}{here:12.1f}{here_late:8.1f}"
        rows.append(f"{row}{one.keeper_share:10.0%}")
    return "\n".join(rows)


def _quantiles(found: Rescales) -> tuple[float, float]:
    """Return the median and the 95 % quantile, in milliseconds."""
    all_s = sorted(found.losses_s + found.joins_s)
    return 1e3 * statistics.median(all_s), 1e3 * all_s[int(0.95 * (len(all_s) - 1))]
