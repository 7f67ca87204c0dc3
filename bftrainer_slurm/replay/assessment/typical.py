"""A typical elastic trainer, for those who have none to describe.

A vision model with data parallelism: Amdahl's law with 1 % of a step serial (64 nodes give 39
times one node's speed), up to 64 nodes, and the paper's 18 s to grow and 12 s to shrink
(arXiv 2106.12091, section on rescaling costs). Its samples/s on one node cancel out of every
figure of an assessment.
"""

from __future__ import annotations

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.replay.trainers import TrainerSpec

_SERIAL = 0.01
_NODES = (1, 2, 4, 8, 16, 32, 64)
_ONE_NODE_SAMPLES_S = 1000.0
_NEVER_DONE = 1e15  # samples: more than any cluster gives in a year
DESCRIPTION = (
    "1 to 64 nodes; 1 % of each step does not scale (64 nodes are 39 times as fast as one); "
    "18 s without progress when it grows, 12 s when it shrinks"
)


def typical_trainers(count: int) -> tuple[TrainerSpec, ...]:
    """Return so many equal trainers that are never done."""
    speed = [_ONE_NODE_SAMPLES_S * n / (1 + _SERIAL * (n - 1)) for n in _NODES]
    curve = ThroughputCurve((0, *_NODES), (0.0, *speed))
    return tuple(
        TrainerSpec(
            name=f"typical-{number}",
            submit_s=0.0,
            min_nodes=1,
            max_nodes=_NODES[-1],
            rescale_up_s=18.0,
            rescale_down_s=12.0,
            total_samples=_NEVER_DONE,
            curve=curve,
        )
        for number in range(count)
    )
