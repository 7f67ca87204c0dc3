"""A made-up workload: which jobs users submit when, drawn from a seed.

Sizes, run times and arrivals follow what is common to the logs of the Parallel Workloads Archive
(Lublin and Feitelson, "The workload on parallel supercomputers", JPDC 63, 2003).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DAY_S = 86400.0
EPOCH_S = 1_704_067_200.0  # Monday, 1 January 2024, 00:00 UTC
_HOUR_S = 3600.0
_SAMPLE = 20_000
_WARM_UP_DAYS = 2.0  # simulated first, and left out: the cluster starts empty
_LARGEST = 0.25  # job, as a share of the cluster
_MEDIAN_RUN_S = 2700.0
_SPREAD = 1.6  # of the run times: sigma of the lognormal
LONGEST_RUN_S = DAY_S


class WorkloadError(ValueError):
    """A workload cannot be made; one line says why."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What to draw. ``load`` is the node time asked for, over what the cluster has."""

    nodes: int
    load: float = 0.95
    seed: int = 1
    days: float = 7.0

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 100_000:
            raise WorkloadError("a made-up cluster has 1 to 100,000 nodes")
        if not 0 < self.load <= 1.5:
            raise WorkloadError("the load of a made-up cluster is above 0 and at most 1.5")
        if not 0 <= self.seed < 1 << 63:
            raise WorkloadError("the seed of a made-up cluster is 0 or more")
        if not 0 < self.days <= 400:
            raise WorkloadError("a made-up cluster runs for more than 0 and at most 400 days")

    @property
    def span_s(self) -> float:
        """How long the cluster runs, with the warm-up."""
        return (_WARM_UP_DAYS + self.days) * DAY_S

    @property
    def from_s(self) -> float:
        """When the warm-up is over; Unix seconds."""
        return EPOCH_S + _WARM_UP_DAYS * DAY_S

    @property
    def to_s(self) -> float:
        """When the cluster stops; Unix seconds."""
        return self.from_s + self.days * DAY_S

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its nodes."""
        digits = len(str(self.nodes - 1))
        return tuple(f"n{number:0{digits}}" for number in range(self.nodes))


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """What users submit, a row for each job, by submit time (seconds from the start)."""

    submit_s: NDArray[np.float64]
    nodes: NDArray[np.int32]
    run_s: NDArray[np.float64]  # how long it runs
    limit_s: NDArray[np.float64]  # how long it asked for; run_s or more


def parse_synthetic(text: str, days: float = 7.0) -> Workload:
    """Read ``NODES[:LOAD[:SEED]]``, such as ``1000:0.9:42``; raise WorkloadError."""
    parts = text.split(":")
    try:
        nodes = int(parts[0])
        load = float(parts[1]) if len(parts) > 1 else 0.95
        seed = int(parts[2]) if len(parts) > 2 else 1
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3:
        raise WorkloadError("write NODES[:LOAD[:SEED]], such as 1000:0.9:42")
    return Workload(nodes, load, seed, days)


def draw(workload: Workload) -> Jobs:
    """Draw the jobs of a workload; the same workload always gives the same jobs.

    Run times are lognormal; sizes are uniform in their logarithm and three times of four a power
    of two; limits are what the job runs, times 1 to 10 (log-uniform), in whole quarters of an
    hour and at most the longest; arrivals are Poisson, more by day than by night, fewer at
    weekends (the first day is a Monday).
    """
    random = np.random.default_rng(workload.seed)
    # Jobs a second, from the mean node time of jobs like these: a sample of them, drawn first.
    node_s = float(np.mean(_sizes(workload, _SAMPLE, random) * _runs(_SAMPLE, random)))
    expected = workload.load * workload.nodes * workload.span_s / node_s
    count = int(random.poisson(expected))
    run_s = _runs(count, random)
    asked_s = np.ceil(run_s * np.exp(random.uniform(0, math.log(10), count)) / 900) * 900
    return Jobs(
        submit_s=_arrivals(workload.span_s, count, random),
        nodes=_sizes(workload, count, random),
        run_s=run_s,
        limit_s=np.maximum(np.minimum(asked_s, LONGEST_RUN_S), run_s),
    )


def _sizes(workload: Workload, count: int, random: np.random.Generator) -> NDArray[np.int32]:
    largest = max(1, int(workload.nodes * _LARGEST))
    powers = random.uniform(0, math.log2(largest + 1), count)
    rounded = random.random(count) < 0.75
    sizes = np.exp2(np.where(rounded, np.floor(powers), powers)).astype(np.int32)
    return np.minimum(sizes, largest)


def _runs(count: int, random: np.random.Generator) -> NDArray[np.float64]:
    runs = random.lognormal(math.log(_MEDIAN_RUN_S), _SPREAD, count)
    return np.clip(np.round(runs), 1.0, LONGEST_RUN_S)


def _arrivals(span_s: float, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Draw times of submission: more by day than by night, fewer at weekends."""
    hours = np.arange(math.ceil(span_s / _HOUR_S))
    by_day = 1 + 0.6 * np.cos((hours % 24 - 14) / 24 * 2 * math.pi)  # most at 14:00
    weight = by_day * np.where(hours // 24 % 7 >= 5, 0.6, 1.0)
    edges_s = np.minimum(np.append(hours, len(hours)) * _HOUR_S, span_s)
    weight *= np.diff(edges_s)
    chance = np.insert(np.cumsum(weight), 0, 0.0) / weight.sum()
    return np.floor(np.interp(np.sort(random.random(count)), chance, edges_s))
