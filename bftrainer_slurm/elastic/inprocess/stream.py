"""An iterable data set with state, read by all ranks alike: each trains its part of what it reads.

So the place in it is one, however many ranks there are. Which part is whose is in ``sampler``.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from typing import Any

from torch.utils.data import Dataset, IterableDataset, default_collate

from bftrainer_slurm.elastic.inprocess.loader import Given
from bftrainer_slurm.elastic.inprocess.sampler import Course, Cursor
from bftrainer_slurm.elastic.inprocess.state import flatten, unflatten

UNKNOWN_SIZE = sys.maxsize  # of an epoch: more than anybody will have read

# Read ahead of a step: whether the epoch ends with it, or with a lone sample, which it then shares.
_AHEAD = 2


def is_iterable(dataset: Dataset[Any]) -> bool:
    """Return whether a data set gives its samples in its own order only."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__")


class Stream:
    """Where ``cursor`` says, in a data set whose state can be read and set.

    Args:
        dataset: after ``load_state_dict`` with what ``state_dict`` returned, its iterator goes on
            after the sample that it had given last. Its order is the same on all ranks; with
            ``set_epoch`` it may be another in each epoch.
        course: how much a step takes.
        cursor: returns where the training stands.
        collate_fn: as DataLoader's.

    Raises:
        TypeError: the data set's state is none, or cannot be sent; or other options are wished.
    """

    def __init__(
        self,
        dataset: Any,
        course: Course,
        cursor: Callable[[], Cursor],
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        **options: Any,
    ) -> None:
        _check(dataset, options)
        self._dataset = dataset
        self._course = course
        self._cursor = cursor
        self._collate = collate_fn
        self._first = deepcopy(dataset.state_dict())
        self._read_from(0, 0, self._first)

    def rehearsal(self) -> Any:
        """Return a batch for a step that is not committed."""
        samples = self._ahead_of(self._cursor(), len(self._course.rehearsal()))
        return self._collate(samples)

    def batch(self, cursor: Cursor, rank: int, world: int) -> Given:
        """Return a rank's batch of the step at ``cursor``."""
        samples = self._ahead_of(cursor, self._course.total(world) + _AHEAD)
        seen = replace(self._course, size=cursor.position + len(samples))
        places = seen.places(cursor, rank, world)
        batch = self._collate([samples[place - cursor.position] for place in places])
        return Given(batch, seen.weight(cursor, rank, world), seen.after(cursor, world))

    def discard(self) -> None:
        """Keep what was read: nothing of it depends on the world."""

    def state_dict(self) -> dict[str, Any]:
        """Return a place before the training's, and how many samples lie between them."""
        cursor = self._cursor()
        read, state = 0, self._first
        if cursor.epoch == self._epoch:
            read, state = [mark for mark in self._marks if mark[0] <= cursor.position][-1]
        return {"epoch": cursor.epoch, "read": read, "state": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go there."""
        self._read_from(state_dict["epoch"], state_dict["read"], state_dict["state"])

    def _read_from(self, epoch: int, read: int, state: Any) -> None:
        self._dataset.load_state_dict(deepcopy(state))
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        self._epoch = epoch
        self._read = read  # samples of the epoch
        self._waiting: deque[Any] = deque()  # of these, those that are not trained yet
        self._marks = [(read, state)]  # the data set's states after so many samples
        self._iterator: Iterator[Any] = iter(self._dataset)

    def _ahead_of(self, cursor: Cursor, count: int) -> list[Any]:
        """Return the next samples, fewer where the epoch ends.

        Raises:
            ValueError: there is none.
        """
        if cursor.epoch != self._epoch:
            self._read_from(cursor.epoch, 0, self._first)
        trained = cursor.position - (self._read - len(self._waiting))
        lacking = trained + count - len(self._waiting)
        if lacking > 0:
            self._mark(cursor)
            found = list(islice(self._iterator, lacking))
            self._read += len(found)
            self._waiting.extend(found)
        for _ in range(min(trained, len(self._waiting))):
            self._waiting.popleft()
        if not self._waiting:
            raise ValueError(
                f"{type(self._dataset).__name__} gives no sample after {cursor.position} of epoch "
                f"{cursor.epoch}"
            )
        return list(islice(self._waiting, count))

    def _mark(self, cursor: Cursor) -> None:
        if self._marks[-1][0] < self._read:
            self._marks.append((self._read, deepcopy(self._dataset.state_dict())))
        while len(self._marks) > 1 and self._marks[1][0] <= cursor.position:
            del self._marks[0]


def _check(dataset: Any, options: dict[str, Any]) -> None:
    name = type(dataset).__name__
    if not hasattr(dataset, "state_dict") or not hasattr(dataset, "load_state_dict"):
        raise TypeError(
            f"{name} has no length and no state: write its state_dict() and load_state_dict(), see "
            "docs/elastic.md, or use torchrun alone, and elastic.must_save()"
        )
    if wished := [option for option, value in options.items() if value]:
        raise TypeError(
            f"{', '.join(wished)}: an iterable data set is read by the training process itself, "
            "only collate_fn can be chosen"
        )
    try:
        unflatten(*flatten(dataset.state_dict()))
    except Exception as error:
        raise TypeError(
            f"{name}.state_dict() has to consist of tensors, plain values, and dicts, lists and "
            f"tuples of them: {error}"
        ) from error
