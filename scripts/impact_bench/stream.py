"""The seeded streams of ordinary jobs: a busy site's, and a quick one, in chunks. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from scripts.demonstration.stream import OrdinaryJob

_SPARE_S = 5.0  # a job that needs all of its time limit fails, now and then, by itself
_LARGEST_BURST = 6
# How often a job has up to so many nodes, as a share of all nodes; half of them have one.
_SIZES = ((0.5, 0.0), (0.75, 0.25), (0.88, 0.5), (0.95, 0.75), (1.0, 1.0))
# slurmctld looks at new batch jobs once a second: they meet it at all moments of that second, and
# not all at the same one, which would be another one on the other side.
_SPREAD_OF_A_BURST_S = 1.0


@dataclass(frozen=True, slots=True)
class _Runs:
    """How long jobs run, log-normally, and how many minutes more than that their users ask for."""

    median_s: float
    spread: float  # of the logarithm
    shortest_s: float
    longest_s: float
    more_minutes: tuple[int, ...]


# A real cluster's jobs, a hundred times faster: minutes to hours become seconds to minutes.
_QUICK = _Runs(5.0, 0.9, 2.0, 60.0, (0, 1, 4))
_CHUNK = 30
_LONGEST_GAP_S = 45.0
_SETTLED_S = 1.0  # before which no job comes

_BUSY = _Runs(20.0, 0.8, 5.0, 110.0, (0, 1, 2))
_PASS_S = 30.0  # between backfill's passes
_CLEAR_S = 2.0
# A job of one node runs on while a job of all nodes waits behind it, at the head of the queue. Its
# successor is there before it ends, and may ask for as much time, so that it fits into no hole.
_ROUND_S, _BLOCKS_S, _AHEAD_S = 390.0, 332.0, 120.0
_ALL_NODES_S = 12.0
_WORTH_A_ROUND_S = 60.0  # so long others come beside the last one at least


def busy_stream(jobs: int, nodes: int, seed: int, load: float) -> list[OrdinaryJob]:
    """Return jobs of one node to all, behind a job of all nodes that waits at the queue's head.

    ``load``: node-seconds that they ask for, of those that there are while they arrive. Times are
    seconds since a pass of backfill, and passes come every 30 s: no job is submitted within 2 s of
    one, nor ends so if one has started it. Whether it is in time must not be chance.

    Raises:
        ValueError: the load is too low.
    """
    chooser = random.Random(seed)
    sizes = [min(_size(chooser, nodes), nodes - 1) for _ in range(jobs)]
    drawn = [_made_job(chooser, chooser.expovariate(1), size, _BUSY) for size in sizes]
    rate = load * nodes - (_BLOCKS_S + nodes * _ALL_NODES_S) / _ROUND_S  # that is left to them
    if rate <= 0:
        raise ValueError(f"a load of {load:g} is less than the job ahead of the large one alone")
    rounds_s, behind = [0.0], _arriving(drawn[: max(0, jobs - 2)], rate)
    while behind and behind[-1].at_s > len(rounds_s) * _ROUND_S + _WORTH_A_ROUND_S:
        rounds_s.append(len(rounds_s) * _ROUND_S - _AHEAD_S)
        behind = _arriving(drawn[: jobs - 2 * len(rounds_s)], rate)
    blocking = [
        job
        for at_s in rounds_s
        for job in (
            OrdinaryJob(_clear_of_passes(at_s), 1, _BLOCKS_S, math.ceil(_BLOCKS_S / 60)),
            OrdinaryJob(_clear_of_passes(at_s) + 0.2, nodes, _ALL_NODES_S, 1),
        )
    ]
    return sorted([*blocking, *behind], key=lambda job: job.at_s)[:jobs]


def _arriving(drawn: Sequence[OrdinaryJob], rate: float) -> list[OrdinaryJob]:
    """Return them as they come: their gaps are as drawn, and ask for ``rate`` nodes in all."""
    gaps = [job.at_s for job in drawn]
    scale = sum(job.nodes * job.runs_s for job in drawn) / rate / max(sum(gaps), 1e-9)
    return [
        replace(job, at_s=_clear_of_passes(1 + scale * until), runs_s=_clear_of_passes(job.runs_s))
        for job, until in zip(drawn, accumulate(gaps), strict=True)
    ]


def quick_stream(jobs: int, nodes: int, seed: int, load: float) -> list[list[OrdinaryJob]]:
    """Return chunks of 30 jobs: bursts of one node to all, their times from each chunk's begin.

    ``load`` as for the busy stream, but for gaps that would be longer than 45 s. Each chunk has a
    job of all nodes in its middle, before which nodes drain while others arrive.
    """
    chooser = random.Random(seed)
    counts = [min(_CHUNK, jobs - begin) for begin in range(0, jobs, _CHUNK)]
    return [_made_chunk(chooser, count, nodes, load) for count in counts]


def _clear_of_passes(time_s: float) -> float:
    passes, into_s = divmod(time_s, _PASS_S)
    clear = (_PASS_S - 2 * _CLEAR_S) / _PASS_S
    return round(passes * _PASS_S + _CLEAR_S + clear * into_s, 3)


def _made_chunk(chooser: random.Random, count: int, nodes: int, load: float) -> list[OrdinaryJob]:
    made: list[OrdinaryJob] = []
    at_s = _SETTLED_S
    while len(made) < count:
        burst = min(count - len(made), _burst(chooser))
        asked_s = 0.0
        for _ in range(burst):
            size = nodes if len(made) == count // 2 else _size(chooser, nodes)
            submit_s = at_s + chooser.uniform(0, _SPREAD_OF_A_BURST_S)
            job = _made_job(chooser, submit_s, size, _QUICK)
            asked_s += job.nodes * job.runs_s
            made.append(job)
        gap_s = chooser.expovariate(load * nodes / asked_s)
        at_s += min(_LONGEST_GAP_S, gap_s)
    return sorted(made, key=lambda job: job.at_s)


def _made_job(chooser: random.Random, at_s: float, nodes: int, runs: _Runs) -> OrdinaryJob:
    runs_s = runs.median_s * math.exp(chooser.gauss(0, runs.spread))
    runs_s = round(min(runs.longest_s, max(runs.shortest_s, runs_s)), 1)
    # Users ask for more than they need, and Slurm counts in minutes.
    minutes = math.ceil((runs_s + _SPARE_S) / 60) + chooser.choice(runs.more_minutes)
    return OrdinaryJob(round(at_s, 3), nodes, runs_s, minutes)


def _burst(chooser: random.Random) -> int:
    return chooser.randint(2, _LARGEST_BURST) if chooser.random() < 0.25 else 1


def _size(chooser: random.Random, nodes: int) -> int:
    drawn = chooser.random()
    most = 0
    for until, share in _SIZES:
        least, most = min(most + 1, nodes), max(1, int(share * nodes))
        if drawn < until:
            return chooser.randint(min(least, most), most)
    return nodes
