"""The seeded stream of ordinary jobs of a busy site. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, count

from scripts.demonstration.stream import OrdinaryJob

_SPARE_S = 5.0  # a job that needs all of its time limit sometimes fails by itself
# Small and short jobs, for which backfill finds room before a large one. Their run times (seconds)
# are log-normal, and their users ask for so many minutes more than that.
_MEDIAN_S, _SPREAD, _SHORTEST_S, _LONGEST_S = 35.0, 0.5, 10.0, 110.0
_MORE_MINUTES = (0, 0, 1)
# How often a job has up to this share of all nodes; two jobs in three have one node.
_GPUS, _OFTEN = (1, 2, 4, 8, 16), (50, 15, 15, 15, 5)  # where jobs share nodes; percent
_SIZES = ((0.65, 0.0), (0.87, 0.25), (0.97, 0.5), (1.0, 0.9))
_PASS_S, _CLEAR_S = 30.0, 2.0  # between backfill's passes, and from one to what jobs do
# A job of one node runs, while a job of all nodes waits behind it at the head of the queue. The
# next two come before it ends; the long one asks for so much time that it fits into no hole.
_ROUND_S, _AHEAD_S = 600.0, 120.0
_ALL_NODES_S = 12.4
_DRAIN_S = 30.0  # from the end of the long job, as others still run
_LAST_S = 45.0  # for the last ones to be given nodes before the last large job


def busy_stream(
    jobs: int,
    nodes: int,
    seed: int,
    load: float,
    gpus: int = 0,
    longer: int = 1,
    no_head: bool = False,
) -> list[OrdinaryJob]:
    """Return jobs of one node to all, behind a job of all nodes that waits at the queue's head.

    With ``gpus`` of each node, they have 1 to 16 GPUs, and the one ahead of the large one has one.
    With ``no_head`` no job of all nodes is ahead of them, and most start as soon as they come.
    They run ``longer`` times as long as jobs of the bench, and come as much more seldom. ``load``:
    the node-seconds that they ask for, as a share of all while they arrive. Times are seconds since
    a pass of backfill, and passes come every 30 s. Chance must not decide which pass sees a job: so
    no job is submitted within 2 s of a pass, and no job that a pass has started ends so close to
    one. A job that the main scheduler has started does not end near a whole second.

    Raises:
        ValueError: the load is too low.
    """
    chooser, units = random.Random(seed), nodes * max(gpus, 1)  # GPUs, or whole nodes
    sizes = [_sized(chooser, nodes, gpus) for _ in range(jobs)]
    drawn = [_drawn(chooser, *size, longer) for size in sizes]
    if no_head:
        return _arriving(drawn, load * units)
    ahead = (_long_s(_ROUND_S) + units * _ALL_NODES_S) / _ROUND_S
    rate = load * units - ahead  # units that are left for them
    if rate <= 0:
        raise ValueError(f"a load of {load:g} is less than the job ahead of the large one alone")
    for rounds in count(1):
        behind = _arriving(drawn[: max(0, jobs - 2 * rounds)], rate)
        until_s = (behind[-1].at_s if behind else 0.0) + _LAST_S
        if rounds >= round(until_s / _ROUND_S):
            break
    round_s = until_s / rounds
    for number in range(rounds):
        at_s = _clear_of_passes(max(0.0, number * round_s - _AHEAD_S))
        runs_s = _clear_of_looks(_long_s(round_s))
        behind += [
            OrdinaryJob(at_s, 1, runs_s, math.ceil((runs_s + _SPARE_S) / 60), min(gpus, 1)),
            OrdinaryJob(at_s + 0.2, nodes, _ALL_NODES_S, 1, gpus),
        ]
    return sorted(behind, key=lambda job: job.at_s)[:jobs]


def quicker(stream: Sequence[OrdinaryJob], times: float) -> list[OrdinaryJob]:
    """Return the same jobs, ``times`` as fast; their time limits are still whole minutes."""
    return [
        replace(job, at_s=round(job.at_s / times, 3), runs_s=round(job.runs_s / times, 2))
        for job in stream
    ]


def _long_s(round_s: float) -> float:
    return max(60.0, round_s - _DRAIN_S - _ALL_NODES_S)


def _arriving(drawn: Sequence[OrdinaryJob], rate: float) -> list[OrdinaryJob]:
    """Return the jobs with their times: gaps are as drawn, and all need ``rate`` units in total."""
    asked = sum(job.nodes * max(job.gpus, 1) * job.runs_s for job in drawn)
    scale = asked / rate / max(sum(job.at_s for job in drawn), 1e-9)
    return [
        replace(
            job,
            at_s=_clear_of_passes(1 + scale * until),
            runs_s=_clear_of_looks(_clear_of_passes(job.runs_s)),
        )
        for job, until in zip(drawn, accumulate(job.at_s for job in drawn), strict=True)
    ]


def _clear_of_passes(time_s: float) -> float:
    passes, into_s = divmod(time_s, _PASS_S)
    clear = (_PASS_S - 2 * _CLEAR_S) / _PASS_S
    return round(passes * _PASS_S + _CLEAR_S + clear * into_s, 3)


def _clear_of_looks(runs_s: float) -> float:
    # A job takes 0.1 s to start and to end, and two looks are 2 ms more than a second apart.
    return round(math.floor(runs_s) + 0.3 + 0.3 * (runs_s % 1), 2)


def _drawn(chooser: random.Random, nodes: int, gpus: int, longer: int) -> OrdinaryJob:
    """Draw the rest of a job; ``at_s`` is the gap before it, of a mean of 1."""
    gap, runs_s = chooser.expovariate(1), _MEDIAN_S * math.exp(chooser.gauss(0, _SPREAD))
    runs_s = longer * round(min(_LONGEST_S, max(_SHORTEST_S, runs_s)), 1)
    # Users ask for more than they need, and Slurm counts in minutes.
    minutes = math.ceil((runs_s + _SPARE_S) / 60) + chooser.choice(_MORE_MINUTES)
    return OrdinaryJob(round(gap, 3), nodes, runs_s, minutes, gpus)


def _sized(chooser: random.Random, nodes: int, gpus: int) -> tuple[int, int]:
    """Draw how many nodes a job has, at most all but one, and how many GPUs of each."""
    if gpus:
        (drawn,) = chooser.choices(_GPUS, _OFTEN)
        return min(math.ceil(drawn / gpus), nodes - 1), min(drawn, gpus)
    chance, most = chooser.random(), 0
    for until, share in _SIZES:
        least, most = min(most + 1, nodes), max(1, int(share * nodes))
        if chance < until:
            break
    return min(chooser.randint(min(least, most), most), nodes - 1), 0
