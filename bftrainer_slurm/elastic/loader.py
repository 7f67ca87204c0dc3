"""The batches of a training, in step with its trainer: repeated when a step was, redistributed
when the world has changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from bftrainer_slurm.elastic.data_workers import DataWorkerStart
from bftrainer_slurm.elastic.sampler import Course

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.training import Training

_REHEARSALS = 2  # DDP orders its buckets after the first backward pass


class Loader:
    """Iterate over it once: it gives this rank's batches of all epochs that are left."""

    def __init__(
        self,
        trainer: Training,
        dataset: Dataset[Any],
        course: Course,
        seed: int | None,
        options: dict[str, Any],
    ) -> None:
        self._trainer = trainer
        self._course = course
        self._seed = seed
        self._plan = _Plan()
        if trainer.changing and options.get("num_workers"):
            options["worker_init_fn"] = DataWorkerStart(options.get("worker_init_fn"))
        self._data: DataLoader[Any] = DataLoader(dataset, batch_sampler=self._plan, **options)
        self._batches: Iterator[Any] | None = None
        self._ends_epoch = False
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch of the batch given last, from 0 on."""
        return self._epoch

    @property
    def ends_epoch(self) -> bool:
        """Whether the batch given last is its epoch's last one."""
        return self._ends_epoch

    def __iter__(self) -> Iterator[Any]:
        trainer, course = self._trainer, self._course
        if trainer.changing:
            yield from self._rehearse()
        trainer.regroup()
        while True:
            cursor = trainer.cursor
            over = course.is_over(cursor)
            if over and trainer.finish():
                return
            if over or trainer.must_regroup():
                self._discard()
                trainer.regroup()
                continue
            rank, world = trainer.rank, trainer.world
            if self._batches is None:
                self._plan.lists = course.batches(cursor, rank, world)
                self._seed_step(cursor.step, rank)  # the workers' seeds come of it
                self._batches = iter(self._data)
            self._epoch = cursor.epoch
            self._ends_epoch = course.ends_epoch(cursor, world)
            self._seed_step(cursor.step, rank)
            batch = next(self._batches)
            trainer.expect(course.weight(cursor, rank, world), course.after(cursor, world))
            yield batch
            trainer.check_stepped()
            if trainer.cursor == cursor:
                self._discard()

    def _rehearse(self) -> Iterator[Any]:
        """Give batches for steps that are not committed: whoever joins has done its first ones."""
        for _ in range(_REHEARSALS):
            self._plan.lists = iter([self._course.rehearsal()])
            self._seed_step(0, 0)
            for batch in self._data:
                self._trainer.expect_rehearsal()
                yield batch
                self._trainer.check_stepped()

    def _discard(self) -> None:
        """Drop what was prefetched, in a thread: worker processes take their time to end."""
        if self._batches is not None:
            held, self._batches = [self._batches], None
            threading.Thread(target=held.clear, daemon=True).start()

    def _seed_step(self, step: int, rank: int) -> None:
        if self._seed is not None:
            torch.manual_seed(step_seed(self._seed, step, rank))


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of torch's generators for one rank's part of a step."""
    return ((seed * 1_000_003 + step) * 1_000_003 + rank) % 2**63


class _Plan:
    """DataLoader's batch sampler: the lists of indices from where the training stands."""

    def __init__(self) -> None:
        self.lists: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.lists
