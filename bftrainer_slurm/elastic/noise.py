"""The gradient noise scale, measured from DDP's own reductions. Needs torch.

It says up to which batch more samples in a step count nearly as much: plans with the objective
``goodput`` look at it. The estimate is that of McCandlish et al., "An empirical model of
large-batch training" (2018), appendix A.1: a rank's gradient is noisier than the mean over all
ranks, and the squares of both norms tell by how much.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.elastic.steps import of_this_process

_KEPT = 0.998  # of the mean squares from step to step: the last five hundred steps count
_FIRST = 20  # steps before the first estimate
_EVERY = 10  # steps between two: reading a GPU's numbers makes the script wait for it


def measure_noise(ddp_model: Any) -> None:
    """Measure the gradient noise scale of a ``DistributedDataParallel`` model from now on.

    Call it on all ranks, after the model is wrapped. It takes the model's one communication hook,
    which then does what DDP does without one. With a single rank nothing can be measured. Outside
    an element it does nothing.

    Raises:
        RuntimeError: by DDP, if the model has a communication hook already.
    """
    if "BFTRAINER_ELEMENT" not in os.environ or dist.get_world_size(ddp_model.process_group) < 2:
        return
    memory = of_this_process().memory
    noise = Noise(ddp_model.process_group, memory)
    # DDP reads a hook's annotations, and takes those that are texts for wrong ones.
    ddp_model.register_comm_hook(noise, lambda noise, bucket: reduce_bucket(noise, bucket))
    if memory is not None and dist.get_rank() == 0:
        say("measures the gradient noise scale")


class Noise:
    """Sums of squares of the gradient, of this rank's and of all ranks', step by step.

    They are known once a step is over, so the first bucket of a step reads those of the one before.
    ``memory`` gets the estimate; None: another process of the node has it.
    """

    def __init__(self, group: dist.ProcessGroup, memory: Memory | None) -> None:
        self.group, self.ranks = group, dist.get_world_size(group)
        self._memory = memory
        self._squares: dict[int, torch.Tensor] = {}  # by bucket: this rank's, and all ranks'
        self._means: torch.Tensor | None = None
        self._steps = 0

    @property
    def measures(self) -> bool:
        """Whether this rank measures."""
        return self._memory is not None

    def begin(self, bucket: Any) -> torch.Tensor:
        """Return where to write a bucket's two sums of squares."""
        if bucket.index() == 0 and self._squares:
            buckets = list(self._squares.values())
            self._add(torch.stack(buckets).sum(dim=0))
            self._squares = {}
        self._squares[bucket.index()] = torch.zeros(2, device=bucket.buffer().device)
        return self._squares[bucket.index()]

    def _add(self, squares: torch.Tensor) -> None:
        # A step that GradScaler skips has infinite gradients.
        squares = torch.where(squares.isfinite().all(), squares, torch.zeros_like(squares))
        means = torch.zeros_like(squares) if self._means is None else self._means
        self._means = torch.lerp(squares, means, _KEPT)  # too low at first, but not in their ratio
        self._steps += 1
        if self._steps >= _FIRST and self._steps % _EVERY == 0 and self._memory is not None:
            of_rank, of_all = self._means.tolist()
            self._memory.present.noise = noise_scale(of_rank, of_all, self.ranks)


def noise_scale(of_rank: float, of_all: float, ranks: int) -> float:
    """Return the noise scale in batches of all ranks, from mean squares of norms; 0: not known."""
    signal = (ranks * of_all - of_rank) / (ranks - 1)
    noise = (of_rank - of_all) / (ranks - 1)
    return noise / signal if signal > 0 and noise > 0 else 0.0


def reduce_bucket(noise: Noise, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket over all ranks, as DDP does, and look at it before and after."""
    gradient = bucket.buffer()
    squares = noise.begin(bucket) if noise.measures else None
    if squares is not None:
        squares[0] = gradient.float().square().sum()
    reduced = dist.all_reduce(gradient.div_(noise.ranks), group=noise.group, async_op=True)

    def look(future: torch.futures.Future[Any]) -> torch.Tensor:
        found: torch.Tensor = future.value()[0]
        if squares is not None:
            squares[1] = found.float().square().sum()
        return found

    found: torch.futures.Future[torch.Tensor] = reduced.get_future().then(look)
    return found
