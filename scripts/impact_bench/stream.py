"""The seeded stream of ordinary jobs, cut into chunks that each begin on an idle cluster. Pure."""

from __future__ import annotations

import math
import random

from scripts.demonstration.stream import OrdinaryJob

# A real cluster's jobs, a hundred times faster: minutes to hours become seconds to minutes.
_MEDIAN_S = 5.0
_SPREAD = 0.9  # of the logarithm
_SHORTEST_S, _LONGEST_S = 2.0, 60.0
_SPARE_S = 5.0  # a job that needs all of its time limit fails, now and then, by itself
_LARGEST_BURST = 6
# How often a job has up to so many nodes, as a share of all nodes; half of them have one.
_SIZES = ((0.5, 0.0), (0.75, 0.25), (0.88, 0.5), (0.95, 0.75), (1.0, 1.0))
_LONGEST_GAP_S = 45.0
# slurmctld looks at new batch jobs once a second: they meet it at all moments of that second, and
# not all at the same one, which would be another one on the other side.
_SPREAD_OF_A_BURST_S = 1.0


def made_stream(
    jobs: int, nodes: int, seed: int, chunk: int, load: float
) -> list[list[OrdinaryJob]]:
    """Return the chunks: bursts of jobs from one node to all, their times from each chunk's begin.

    ``load``: node-seconds that they ask for, of those that there are while they arrive, but for
    gaps that would be longer than 45 s. Each chunk has a job of all nodes in its middle, before
    which nodes drain while others arrive.
    """
    chooser = random.Random(seed)
    counts = [min(chunk, jobs - begin) for begin in range(0, jobs, chunk)]
    return [_made_chunk(chooser, count, nodes, load) for count in counts]


def _made_chunk(chooser: random.Random, count: int, nodes: int, load: float) -> list[OrdinaryJob]:
    made: list[OrdinaryJob] = []
    at_s = 0.0
    while len(made) < count:
        burst = min(count - len(made), _burst(chooser))
        asked_s = 0.0
        for _ in range(burst):
            size = nodes if len(made) == count // 2 else _size(chooser, nodes)
            job = _made_job(chooser, at_s + chooser.uniform(0, _SPREAD_OF_A_BURST_S), size)
            asked_s += job.nodes * job.runs_s
            made.append(job)
        gap_s = chooser.expovariate(load * nodes / asked_s)
        at_s += min(_LONGEST_GAP_S, gap_s)
    return sorted(made, key=lambda job: job.at_s)


def _made_job(chooser: random.Random, at_s: float, nodes: int) -> OrdinaryJob:
    runs_s = _MEDIAN_S * math.exp(chooser.gauss(0, _SPREAD))
    runs_s = round(min(_LONGEST_S, max(_SHORTEST_S, runs_s)), 1)
    # Users ask for more than they need, and Slurm counts in minutes.
    minutes = math.ceil((runs_s + _SPARE_S) / 60) + chooser.choice((0, 1, 4))
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
