"""The command line of ``scripts/run bench-keeper``: a keeper under load, and what floods cost."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.keeper.credentials import JOB, Means
from scripts.benchkit.command import Findings, bench_command, findings, number, progress, several
from scripts.benchkit.figures import summarise
from scripts.benchkit.machine import this_machine
from scripts.benchkit.text import columns, table
from scripts.keeper_bench import scale
from scripts.keeper_bench.agents import many_files
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
    """How long one user's rescales took while another flooded this keeper, or another keeper."""

    kind: str
    here: Rescales
    elsewhere: Rescales


@bench_command(TimeoutError, ChildProcessError)
@several(
    "--size", "sizes", SIZES, "Trainers x simulated agents of each.", ("1x100", "1x1000", "300x8")
)
@number(
    "--repeat",
    *(50, 0, 10_000),
    "How often a trainer of four nodes loses one and gets one, during each flood.",
)
def main(sizes: Sequence[str], repeat: int) -> Findings:
    """Measure how soon generations are formed, and how much another user's flood delays that.

    The agents are simulated: real connections and messages, no torchrun. On a busy machine
    the keeper's own processor time says more than the seconds.
    """
    machine, tell = this_machine(), progress()
    scales = []
    with many_files():
        for size in sizes:
            tell(f"{size}: measures")
            with site_keeper() as (keeper, key):
                scales.append(asyncio.run(scale.measure(keeper, key.read_bytes(), *SIZES[size])))
        floods = list(_floods(repeat)) if repeat else []
    text = [*map(_table, scales), _flood_table(floods) if floods else ""]
    return findings(machine, *text, scales=scales, floods=floods)


def _floods(repeat: int) -> Iterator[Flooded]:
    tell = progress("flood: ")
    with site_keeper() as (keeper, key), site_keeper() as (other, others_key):
        for one in (keeper, other):
            one.client.own(ARRAY, VICTIM, NODES)
            one.client.own(FLOODERS_ARRAY, FLOODER, _NODES)
        for kind in (*FLOODS, "all at once"):
            tell(kind)
            with flooded(kind, other.address, others_key):
                elsewhere = asyncio.run(rescales(keeper, key.read_bytes(), repeat))
            with flooded(kind, keeper.address, key):
                here = asyncio.run(rescales(keeper, key.read_bytes(), repeat))
            yield Flooded(kind, here, elsewhere)


@contextmanager
def site_keeper() -> Iterator[tuple[Keeper, Path]]:
    """Start a keeper of several users, without MUNGE, and return the site's key too.

    It has a higher priority, as a controller's host is less busy than this one may be.
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
    steps = columns(
        found.steps,
        [
            (f"{found.trainers} x {found.agents} agents, s", lambda one: f"  {one.what}"),
            ("WALL", lambda one: f"{one.wall_s:.2f}"),
            ("KEEPER'S PROCESSOR", lambda one: f"{one.keeper_s:.2f}"),
        ],
    )
    idle = f"  idle: {found.idle_share:.0%} of a processor; {found.memory_mb:.0f} MB more"
    slow = f"\n  {found.hung_up} times the keeper hung up on an agent that was too slow"
    return f"{steps}\n{idle}{slow if found.hung_up else ''}"


def _flood_table(found: Sequence[Flooded]) -> str:
    rows: list[Sequence[str]] = [("FLOOD", "MEDIAN", "P95", "HERE: MEDIAN", "P95", "KEEPER")]
    for one in found:
        times = [summarise(took.losses_s + took.joins_s) for took in (one.elsewhere, one.here)]
        cells = [f"{1e3 * value:.1f}" for took in times for value in (took.median, took.p95)]
        rows.append((one.kind, *cells, f"{one.here.keeper_share:.0%}"))
    head = "rescale of 4 nodes while another user floods another keeper, and this one; ms"
    return f"{head}\n{table(rows)}"
