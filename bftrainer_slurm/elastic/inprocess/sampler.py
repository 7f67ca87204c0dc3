"""Which samples a rank trains in a step, whatever the world's size: pure functions of a cursor.

An epoch is one order of all samples, which steps use up from the first to the last. A step takes
the next ``total`` of them, so a change of the world's size does not touch steps before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import torch
from torch import Tensor


class Batch(Enum):
    """What a batch size means when ranks come and go."""

    LOCAL = "local"  # samples of each rank; a larger world takes more at once (weak scaling)
    GLOBAL = "global"  # samples of all ranks together, however many they are


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a training has come: completed steps, trained samples, the place in its epoch."""

    step: int = 0
    samples: int = 0
    epoch: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A rank's part of a step: its share of the samples, from 0 to 1, and the cursor after it.

    ``after`` None: it is a rehearsal.
    """

    weight: float
    after: Cursor | None


@dataclass(frozen=True, slots=True)
class Course:
    """The steps that a training consists of, for any world."""

    size: int  # samples in an epoch
    epochs: int
    batch_size: int
    batch: Batch = Batch.LOCAL
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.size, self.epochs, self.batch_size) < 1:
            raise ValueError("dataset, epochs and batch_size must not be empty or below 1")

    def total(self, world: int) -> int:
        """Return how many samples a whole step of ``world`` ranks takes."""
        return self.batch_size * world if self.batch is Batch.LOCAL else self.batch_size

    def taken(self, cursor: Cursor, world: int) -> int:
        """Return how many samples the step at ``cursor`` takes: fewer at the end of an epoch.

        It leaves no single sample for the next step, see ``share``.
        """
        left, total = self.size - cursor.position, self.total(world)
        return total - 1 if left == total + 1 and total > 2 else min(left, total)

    def after(self, cursor: Cursor, world: int) -> Cursor:
        """Return the cursor after the step at ``cursor``."""
        taken = self.taken(cursor, world)
        ends = cursor.position + taken == self.size
        return Cursor(
            step=cursor.step + 1,
            samples=cursor.samples + taken,
            epoch=cursor.epoch + ends,
            position=0 if ends else cursor.position + taken,
        )

    def is_over(self, cursor: Cursor) -> bool:
        """Return whether all epochs are done."""
        return cursor.epoch >= self.epochs

    def rehearsal(self) -> list[int]:
        """Return some samples for a step that is not committed; not more than a rank may get."""
        return list(range(min(self.size, self.batch_size if self.batch is Batch.LOCAL else 2)))

    def batches(self, cursor: Cursor, rank: int, world: int) -> Iterator[list[int]]:
        """Yield a rank's samples of all steps from ``cursor`` on, if the world stays as it is.

        A rank without a share gets rank 0's samples, as it needs something to compute; its
        gradients have no weight.
        """
        while not self.is_over(cursor):
            order = _order(self.size, self.shuffle, self.seed + cursor.epoch)
            mine = self.places(cursor, rank, world)
            yield order[mine.start : mine.stop].tolist()
            cursor = self.after(cursor, world)

    def places(self, cursor: Cursor, rank: int, world: int) -> range:
        """Return the places in the epoch that a rank computes in the step at ``cursor``."""
        taken = self.taken(cursor, world)
        return share(cursor.position, taken, rank, world) or share(cursor.position, taken, 0, world)

    def part(self, cursor: Cursor, rank: int, world: int) -> Part:
        """Return what a rank trains of the step at ``cursor``."""
        taken = self.taken(cursor, world)
        own = share(cursor.position, taken, rank, world)
        return Part(len(own) / taken, self.after(cursor, world))


def share(position: int, taken: int, rank: int, world: int) -> range:
    """Return one rank's places among the ``taken`` ones from ``position`` on.

    Parts follow each other and differ by at most one place. The first ranks have the larger ones,
    so rank 0 always has one. If possible, no part has just one place: batch normalisation refuses
    a single sample, and whether a script runs must not depend on the world.
    """
    sharing = min(world, max(1, taken // 2))
    if rank >= sharing:
        return range(0)
    each, more = divmod(taken, sharing)
    begin = position + rank * each + min(rank, more)
    return range(begin, begin + each + (rank < more))


@lru_cache(maxsize=2)  # it is needed at each step
def _order(size: int, shuffle: bool, seed: int) -> Tensor:
    if not shuffle:
        return torch.arange(size)
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))
