"""A typical elastic trainer, for users who do not describe their own.

A vision model with data parallelism: Amdahl's law with 1 % of a step serial (64 nodes give 39
times one node's speed), up to 64 nodes. Its pauses are those of the project's own runtime with an
unchanged script (docs/internals/bench-elastic.md). Its samples/s on one node cancel out of every
figure.
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
    "a new node trains after 3 s, the others pause for 0.2 s when a node joins or leaves; steps of "
    "1 s, and a checkpoint each 300 s, which matters if all its nodes are taken at once"
)


def typical_trainers(count: int) -> tuple[TrainerSpec, ...]:
    """Return so many equal trainers that never end."""
    speed = [_ONE_NODE_SAMPLES_S * n / (1 + _SERIAL * (n - 1)) for n in _NODES]
    curve = ThroughputCurve((0, *_NODES), (0.0, *speed))
    return tuple(
        TrainerSpec(
            name=f"typical-{number}",
            submit_s=0.0,
            min_nodes=1,
            max_nodes=_NODES[-1],
            rescale_up_s=0.2,
            rescale_down_s=0.2,
            total_samples=_NEVER_DONE,
            curve=curve,
            start_s=3.0,
            step_s=1.0,
            checkpoint_s=300.0,
        )
        for number in range(count)
    )
