"""How many samples the DataLoaders of a process give it to train, for scripts that do not tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import dataloader


def tell_of_batches(tell: Callable[[int], None]) -> bool:
    """Call ``tell`` with the samples of each batch that is given where gradients are computed.

    So validation does not count. Returns False where torch has no such place.
    """
    iterator: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
    if not hasattr(iterator, "__next__"):
        return False
    give = iterator.__next__

    def give_and_tell(batches: Any) -> Any:
        batch = give(batches)
        if torch.is_grad_enabled():
            tell(samples_in(batch))
        return batch

    iterator.__next__ = give_and_tell
    return True


def samples_in(batch: Any) -> int:
    """Return how many samples a batch has: the length of its first tensor; 0 if there is none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(parts, str | bytes) or not hasattr(parts, "__iter__"):
        return 0
    return next((found for part in parts if (found := samples_in(part))), 0)
