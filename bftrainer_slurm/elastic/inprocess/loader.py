"""The batches of a training: a batch is repeated with its step, and batches are divided again
when the world has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from bftrainer_slurm.elastic.inprocess.sampler import Course, Cursor, Part
from bftrainer_slurm.elastic.inprocess.stream import Stream
from bftrainer_slurm.elastic.processes import DataWorkerStart

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.inprocess.training import Training

_REHEARSALS = 2  # DDP orders its buckets after the first backward pass
_CHOSEN = {"batch_sampler", "drop_last", "sampler"}  # options of DataLoader that the plan replaces


class Loader:
    """Iterate over it once: it gives this rank's batches of all epochs that are left.

    ``epoch`` is that of the last batch, from 0 on; ``ends_epoch``: it was its epoch's last one.
    """

    def __init__(
        self,
        trainer: Training,
        source: Indexed | Stream,
        course: Course,
        seed: int | None,
        until: Callable[[], bool],
    ) -> None:
        self._trainer = trainer
        self._source = source
        self._course = course
        self._seed = seed
        self._until = until
        self.epoch = 0
        self.ends_epoch = False

    def __iter__(self) -> Iterator[Any]:
        trainer = self._trainer
        if trainer.changing:
            yield from self._rehearse()
        trainer.regroup()
        while True:
            cursor = trainer.cursor
            over = self._course.is_over(cursor) or self._until()
            if over and trainer.finish():
                return
            if over or trainer.must_regroup():
                self._source.discard()
                trainer.regroup()
                continue
            seed_step(self._seed, cursor.step, trainer.rank)  # DataLoader's workers use it
            batch, part = self._source.batch(cursor, trainer.rank, trainer.world)
            self.epoch = cursor.epoch
            self.ends_epoch = part.after is not None and part.after.epoch > cursor.epoch
            trainer.expect(part)
            yield batch
            trainer.check_stepped()
            if trainer.cursor == cursor:
                self._source.discard()

    def _rehearse(self) -> Iterator[Any]:
        """Give batches for steps that are not committed, for a newcomer's first steps."""
        for _ in range(_REHEARSALS):
            seed_step(self._seed, 0, 0)
            batch = self._source.rehearsal()
            self._trainer.expect(Part(1.0, None))
            yield batch
            self._trainer.check_stepped()


class Indexed:
    """A data set with numbered samples, read by DataLoader."""

    def __init__(
        self,
        dataset: Dataset[Any],
        course: Course,
        seed: int | None,
        changing: bool,
        options: dict[str, Any],
    ) -> None:
        self._course = course
        self._seed = seed
        self._plan = _Plan()
        for name in _CHOSEN & options.keys():
            raise ValueError(f"{name}: leave it out, the trainer says which samples a rank trains")
        if changing and options.get("num_workers"):
            options["worker_init_fn"] = DataWorkerStart(options.get("worker_init_fn"))
        self._data: DataLoader[Any] = DataLoader(dataset, batch_sampler=self._plan, **options)
        self._batches: Iterator[Any] | None = None

    def rehearsal(self) -> Any:
        """Return a batch for a step that is not committed."""
        self._plan.lists = iter([self._course.rehearsal()])
        (batch,) = self._data
        return batch

    def batch(self, cursor: Cursor, rank: int, world: int) -> tuple[Any, Part]:
        """Return a rank's batch of the step at ``cursor``, and begin to load the next ones."""
        if self._batches is None:
            self._plan.lists = self._course.batches(cursor, rank, world)
            self._batches = iter(self._data)
            seed_step(self._seed, cursor.step, rank)
        return next(self._batches), self._course.part(cursor, rank, world)

    def discard(self) -> None:
        """Drop what was prefetched, in a thread, as worker processes end slowly."""
        if self._batches is not None:
            held, self._batches = [self._batches], None
            threading.Thread(target=held.clear, daemon=True).start()


def seed_step(seed: int | None, step: int, rank: int) -> None:
    """Seed torch's generators for one rank's part of a step; None: the script does."""
    if seed is not None:
        torch.manual_seed(((seed * 1_000_003 + step) * 1_000_003 + rank) % 2**63)


class _Plan:
    """DataLoader's batch sampler: the lists of indices from the training's cursor on."""

    def __init__(self) -> None:
        self.lists: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.lists
