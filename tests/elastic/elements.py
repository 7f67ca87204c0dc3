"""What tests do with the elements of a trainer, whether these are torchruns or bare processes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from bftrainer_slurm.sizes import ANY, Sizes
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until


class InWorld(Protocol):
    """A step that was made by so many ranks."""

    @property
    def world(self) -> int: ...


Made = TypeVar("Made", bound=InWorld)


class Elements(ABC, Generic[Made]):
    """The elements of trainer ``array``, by task."""

    array: int

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper

    @abstractmethod
    def start(self, *tasks: int, **given: Any) -> None:
        """Start tasks."""

    @abstractmethod
    def steps(self, task: int) -> Sequence[Made]:
        """Return the steps that were made on a task's node, in order."""

    @abstractmethod
    def wait_for_world(self, size: int, *tasks: int) -> None:
        """Wait until these tasks train in a world of so many ranks."""

    def train_on(self, *tasks: int, ranks: int = 1, **given: Any) -> None:
        """Start tasks, each with so many ``ranks``, that train together from their first step on.

        Otherwise those that are ready do not wait for one that is ten seconds later.
        """
        self.own(len(tasks), Sizes((len(tasks),)))
        self.start(*tasks, **given)
        self.wait_for_world(len(tasks) * ranks, *tasks)
        self.own(len(tasks))

    def own(self, want: int, sizes: Sizes = ANY) -> None:
        """Say to the keeper what the controller would: whose trainer it is, and its size."""
        self.keeper.client.own(self.array, os.getuid(), want, sizes)

    def part(self, *tasks: int) -> None:
        """Have tasks leave at a boundary; the keeper waits for 2 s, a busy host needs more."""
        wait_until(lambda: self.keeper.client.part(self.array, tasks), otherwise="have not left")

    def wait_for_steps(self, task: int, count: int = 5) -> None:
        """Wait until a task has made so many steps more."""
        before = len(self.steps(task))
        wait_until(lambda: len(self.steps(task)) >= before + count)

    def last_world(self, task: int) -> int:
        """Return the size of the world in which a task made its last step; 0: it made none."""
        steps = self.steps(task)
        return steps[-1].world if steps else 0
