"""Counts the steps of a process's optimizers, and the samples of its DataLoaders. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from bftrainer_slurm.elastic import steps
from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.torch_private import watch_batches


def count() -> None:
    """Count from now on; in a process that is forked from this one, too."""
    register_optimizer_step_post_hook(_count)
    watch_batches(_given)
    around(torch.autograd, "backward", _backward)


def _count(optimizer: object, args: object, kwargs: object) -> None:
    steps.of_this_process().by_optimizer(optimizer)


def _given(batch: Any) -> None:
    if torch.is_grad_enabled():  # else it is validation
        steps.of_this_process().given(samples_in(batch))


def _backward(function: Callable[..., None], *given: Any, **named: Any) -> None:
    steps.of_this_process().passes_back()
    function(*given, **named)


def samples_in(batch: Any) -> int:
    """Return how many samples a batch has: the length of its first tensor; 0 if there is none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(parts, str | bytes) or not hasattr(parts, "__iter__"):
        return 0
    return next((found for part in parts if (found := samples_in(part))), 0)
