"""Streams in accelerate's loaders: data sets without a length, whose place is one of samples.

Seen with accelerate 1.15. All ranks together read one order of samples, whatever their number,
where rank 0 reads for all (``dispatch_batches``, the default) and where each reads all and keeps
its part (``IterableDatasetShard``). Other loaders give each rank a part of its own, as those of
``datasets`` with several shards do, and what was read of each is not known on other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Any

from bftrainer_slurm.elastic.resuming.marks import Read


@dataclass(frozen=True, slots=True)
class Stream:
    """How these ranks read a stream."""

    samples: int  # of all ranks together, in one batch of each
    copies: int  # that a rank's worker processes read in turn
    way: str  # if it is another one, the order of samples is

    def read(self, batches: int) -> Read:
        """Return what is read for certain when each rank has so many batches."""
        return Read(batches // self.copies * self.copies * self.samples, self.way)

    def batches(self, read: Read | None, accumulated: int) -> int | None:
        """Return how many batches of a rank are passed over, in whole steps; None: not known.

        What is left of them is trained again, nothing is lost.
        """
        if read is None or read.way != self.way:
            return None
        together = lcm(self.copies, accumulated)
        return read.samples // (self.samples * together) * together


def stream_of(loader: Any, ranks: int) -> Stream | None:
    """Return how so many ranks read the stream of a loader of accelerate's.

    None: the order of samples may depend on the number of ranks.
    """
    from accelerate.data_loader import (
        DataLoaderDispatcher,
        DataLoaderShard,
        IterableDatasetShard,
    )
    from torch import Generator

    if not isinstance(loader, DataLoaderDispatcher | DataLoaderShard):
        return None
    data, size, workers = loader.dataset, loader.batch_size, loader.num_workers
    if size is None or getattr(loader, "torch_device_mesh", None) is not None:
        return None
    if isinstance(loader, DataLoaderDispatcher):
        together = size if loader.split_batches else size * ranks
        return Stream(together, 1, f"dispatch {workers}")
    if isinstance(data, IterableDatasetShard):
        together = data.batch_size * (1 if data.split_batches else data.num_processes)
        data = data.dataset
    elif ranks == 1:
        together = size
    else:
        return None
    if isinstance(getattr(data, "generator", None), Generator) and not hasattr(data, "set_epoch"):
        return None  # accelerate seeds it on several ranks only
    return Stream(together, max(1, workers), f"shard {workers}")
