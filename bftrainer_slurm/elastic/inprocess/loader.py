"""The batches of a training, in step with its trainer: repeated when a step was, redistributed
when the world has changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from bftrainer_slurm.elastic.data_workers import DataWorkerStart
from bftrainer_slurm.elastic.inprocess.sampler import Course, Cursor

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.inprocess.training import Training

_REHEARSALS = 2  # DDP orders its buckets after the first backward pass


@dataclass(frozen=True, slots=True)
class Given:
    """A rank's batch, what part of the step's samples it is, and where the step leads."""

    batch: Any
    weight: float
    after: Cursor


class Source(Protocol):
    """Where the samples come from."""

    def rehearsal(self) -> Any:
        """Return a batch for a step that is not committed."""

    def batch(self, cursor: Cursor, rank: int, world: int) -> Given:
        """Return a rank's batch of the step at ``cursor``."""

    def discard(self) -> None:
        """Forget what was prefetched: the world changes, or the last step is repeated."""


class Loader:
    """Iterate over it once: it gives this rank's batches of all epochs that are left."""

    def __init__(self, trainer: Training, source: Source, course: Course, seed: int | None) -> None:
        self._trainer = trainer
        self._source = source
        self._course = course
        self._seed = seed
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
        trainer = self._trainer
        if trainer.changing:
            yield from self._rehearse()
        trainer.regroup()
        while True:
            cursor = trainer.cursor
            over = self._course.is_over(cursor)
            if over and trainer.finish():
                return
            if over or trainer.must_regroup():
                self._source.discard()
                trainer.regroup()
                continue
            seed_step(self._seed, cursor.step, trainer.rank)  # the workers' seeds come of it
            given = self._source.batch(cursor, trainer.rank, trainer.world)
            self._epoch = cursor.epoch
            self._ends_epoch = given.after.epoch > cursor.epoch
            trainer.expect(given.weight, given.after)
            yield given.batch
            trainer.check_stepped()
            if trainer.cursor == cursor:
                self._source.discard()

    def _rehearse(self) -> Iterator[Any]:
        """Give batches for steps that are not committed: whoever joins has done its first ones."""
        for _ in range(_REHEARSALS):
            seed_step(self._seed, 0, 0)
            batch = self._source.rehearsal()
            self._trainer.expect_rehearsal()
            yield batch
            self._trainer.check_stepped()


class Indexed:
    """A data set whose samples have numbers, read by DataLoader."""

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
        if changing and options.get("num_workers"):
            options["worker_init_fn"] = DataWorkerStart(options.get("worker_init_fn"))
        self._data: DataLoader[Any] = DataLoader(dataset, batch_sampler=self._plan, **options)
        self._batches: Iterator[Any] | None = None

    def rehearsal(self) -> Any:
        """Return a batch for a step that is not committed."""
        self._plan.lists = iter([self._course.rehearsal()])
        (batch,) = self._data
        return batch

    def batch(self, cursor: Cursor, rank: int, world: int) -> Given:
        """Return a rank's batch of the step at ``cursor``, and begin to load those after it."""
        if self._batches is None:
            self._plan.lists = self._course.batches(cursor, rank, world)
            self._batches = iter(self._data)
            seed_step(self._seed, cursor.step, rank)
        weight, after = self._course.weight(cursor, rank, world), self._course.after(cursor, world)
        return Given(next(self._batches), weight, after)

    def discard(self) -> None:
        """Drop what was prefetched, in a thread: worker processes take their time to end."""
        if self._batches is not None:
            held, self._batches = [self._batches], None
            threading.Thread(target=held.clear, daemon=True).start()


def seed_step(seed: int | None, step: int, rank: int) -> None:
    """Seed torch's generators for one rank's part of a step; None: the script does."""
    if seed is not None:
        torch.manual_seed(step_seed(seed, step, rank))


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of torch's generators for one rank's part of a step."""
    return ((seed * 1_000_003 + step) * 1_000_003 + rank) % 2**63


class _Plan:
    """DataLoader's batch sampler: the lists of indices from where the training stands."""

    def __init__(self) -> None:
        self.lists: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.lists
