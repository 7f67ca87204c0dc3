"""Counts the steps of a process's optimizers, and the samples of its DataLoaders. Needs torch."""

from __future__ import annotations

from torch.optim.optimizer import register_optimizer_step_post_hook

from bftrainer_slurm.elastic import steps
from bftrainer_slurm.elastic.rendezvous.batches import tell_of_batches


def count() -> None:
    """Count from now on; in a process that is forked from this one, too."""
    register_optimizer_step_post_hook(_count)
    tell_of_batches(lambda samples: steps.of_this_process().given(samples))


def _count(optimizer: object, args: object, kwargs: object) -> None:
    steps.of_this_process().by_optimizer(optimizer)
