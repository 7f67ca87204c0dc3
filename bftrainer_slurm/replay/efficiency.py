"""U and U_free: the samples reached, compared with those on dedicated nodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bftrainer_slurm.replay.drive import Outcome
from bftrainer_slurm.replay.trace import Trace

RunFree = Callable[[Trace], Outcome]  # replays a trace with rescaling free of cost


def dedicated_samples(trace: Trace, mean_pool_nodes: float, run_free: RunFree) -> float:
    """Return the samples of these trainers on as many dedicated nodes as the pool has on average.

    In the same time, without any rescaling cost, planned by the same planner with the same
    objective. A mean between two whole numbers of nodes lies between their samples in proportion.

    U = samples / this; U_free is the same with rescaling free of cost in the replay too.
    """
    low = math.floor(mean_pool_nodes)
    share = mean_pool_nodes - low
    samples = (1 - share) * _samples_on(low, trace, run_free)
    if share:
        samples += share * _samples_on(low + 1, trace, run_free)
    return samples


def _samples_on(nodes: int, trace: Trace, run_free: RunFree) -> float:
    return run_free(_dedicated(nodes, trace.start_s, trace.end_s)).samples if nodes else 0.0


def _dedicated(nodes: int, start_s: float, end_s: float) -> Trace:
    """Nodes that are idle all the time."""
    width = len(str(nodes))
    return Trace(
        nodes=tuple(f"d{number:0{width}}" for number in range(nodes)),
        time_s=np.full(nodes, start_s),
        node=np.arange(nodes, dtype=np.int32),
        idle=np.ones(nodes, np.bool_),
        start_s=start_s,
        end_s=end_s,
    )
