"""An iterable data set with state. Every rank reads all of it, and trains its part of it.

So there is one place in it, however many ranks there are. ``sampler`` says which part is whose.
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

from bftrainer_slurm.elastic.inprocess.sampler import Course, Cursor, Part
from bftrainer_slurm.elastic.inprocess.transfer import flatten, unflatten

UNKNOWN_SIZE = sys.maxsize  # of an epoch: more than anybody will have read

# Samples read beyond a step: they show whether the epoch ends with it, or with one sample more.
_AHEAD = 2


def is_iterable(dataset: Dataset[Any]) -> bool:
    """Return whether a data set gives its samples in its own order only."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__")


class Stream:
    """Gives the batches at ``cursor`` from a data set whose state can be read and set.

    Args:
        dataset: after ``load_state_dict`` with what ``state_dict`` returned, its iterator goes on
            after the last sample that it had given. Its order is the same on all ranks; with
            ``set_epoch`` it may differ from epoch to epoch.
        course: how much a step takes.
        cursor: returns how far the training has come.
        collate_fn: as DataLoader's.

    Raises:
        TypeError: the data set has no state, or one that cannot be sent, or an option is wrong.
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

    def batch(self, cursor: Cursor, rank: int, world: int) -> tuple[Any, Part]:
        """Return a rank's batch of the step at ``cursor``, and which part of the step it is."""
        samples = self._ahead_of(cursor, self._course.total(world) + _AHEAD)
        seen = replace(self._course, size=cursor.position + len(samples))
        places = seen.places(cursor, rank, world)
        batch = self._collate([samples[place - cursor.position] for place in places])
        return batch, seen.part(cursor, rank, world)

    def discard(self) -> None:
        """Do nothing: what was read does not depend on the world."""

    def state_dict(self) -> dict[str, Any]:
        """Return a state of the data set at or before the training's place, and where that is."""
        cursor = self._cursor()
        read, state = 0, self._first
        if cursor.epoch == self._epoch:
            read, state = [mark for mark in self._marks if mark[0] <= cursor.position][-1]
        return {"epoch": cursor.epoch, "read": read, "state": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to the place that ``state_dict`` returned."""
        self._read_from(state_dict["epoch"], state_dict["read"], state_dict["state"])

    def _read_from(self, epoch: int, read: int, state: Any) -> None:
        self._dataset.load_state_dict(deepcopy(state))
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        self._epoch = epoch
        self._read = read  # samples of the epoch
        self._waiting: deque[Any] = deque()  # those of them that are not trained yet
        self._marks = [(read, state)]  # the data set's states after so many samples
        self._iterator: Iterator[Any] = iter(self._dataset)

    def _ahead_of(self, cursor: Cursor, count: int) -> list[Any]:
        """Return the next samples, fewer at the end of the epoch.

        Raises:
            ValueError: there are none.
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
            "'bftrainer help elastic', or use torchrun alone, and elastic.must_save()"
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
