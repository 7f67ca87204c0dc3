"""The gradients of a step with DDP: how they are averaged over all ranks, and which of them are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.inprocess.collective import Communicator


class Gradients:
    """The gradients of a model's parameters in a step.

    DDP averages those of a backward pass from its own output. Whatever else adds to a gradient
    makes it this rank's own again: a pass through the model itself, one under ``no_sync()``, or
    another one from an output that has had its pass. Changes in place, as by clipping, do not.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._places = {one: place for place, one in enumerate(parameters)}  # in the model
        self.known = {one for one in self._places if one.requires_grad}
        self.averaged: set[Tensor] = set()  # those to whose gradients nothing was added since
        self.added = False  # by any backward pass, since it was set to False
        self._buckets: list[list[Tensor]] = []  # the parameters of the step's, as they came
        self._collected: Collected | None = None  # where the ranks' buckets differ
        self._weight = 1.0  # of this rank's in the step
        for one in self.known:
            one.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

    def sum_in_order(self, in_order: bool) -> None:
        """Say whether to sum one by one, in the model's order, as the ranks' buckets differ."""
        self._collected = Collected(self._places) if in_order else None

    def begin(self, weight: float) -> None:
        """Begin a step in which this rank's have this weight."""
        self._weight = weight
        self.averaged.clear()
        self._buckets = []
        if self._collected is not None:
            self._collected.clear()

    def average(self, bucket: GradBucket, group: Communicator) -> Future[Tensor]:
        """Sum a bucket, weighted, over the world: DDP's communication hook."""
        parameters, buffer = bucket.parameters(), bucket.buffer()
        self.averaged.update(parameters)
        self._buckets.append(parameters)
        if self._weight == 0.0:
            buffer.zero_()  # not multiplied: the gradients of a rank without samples may be nan
        elif self._weight != 1.0:
            buffer.mul_(self._weight)
        if self._collected is None:
            return group.sum_ahead(buffer)
        future = self._collected.add(bucket)
        if bucket.is_last():
            self._collected.give(good=group.sum_all(self._collected.gradients()))
        return future

    def layout(self) -> list[tuple[int, ...]]:
        """Return the places in the model of the parameters in each of the step's buckets."""
        return [tuple(self._places[one] for one in bucket) for bucket in self._buckets]

    def own(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Return those of some parameters that have a gradient which was not averaged."""
        return [one for one in parameters if one not in self.averaged and one.grad is not None]

    def _add(self, parameter: Tensor) -> None:
        self.added = True
        self.averaged.discard(parameter)


class Collected:
    """DDP's buckets of one backward pass, where not all ranks get them in the same order.

    torch's own DDP takes rank 0's order of buckets once for all. Here ranks come later, each with
    an order of its own, where the order in which a model uses its parts is left to chance.
    ``places`` has each parameter's place in the model.
    """

    def __init__(self, places: Mapping[Tensor, int]) -> None:
        self._places = places
        self._buckets: list[tuple[Tensor, Sequence[Tensor], Future[Tensor]]] = []

    def add(self, bucket: GradBucket) -> Future[Tensor]:
        """Return the future with which DDP waits for this bucket's sum."""
        future: Future[Tensor] = Future()
        self._buckets.append((bucket.buffer(), bucket.parameters(), future))
        return future

    def gradients(self) -> list[Tensor]:
        """Return each parameter's part of its bucket, in the model's order."""
        parts: dict[int, Tensor] = {}
        for buffer, parameters, _ in self._buckets:
            if len(parameters) == 1:  # it may be sparse
                parts[self._places[parameters[0]]] = buffer
                continue
            sizes = [one.numel() for one in parameters]
            for one, part in zip(parameters, torch.split(buffer, sizes), strict=True):
                parts[self._places[one]] = part
        return [parts[place] for place in sorted(parts)]

    def give(self, good: bool) -> None:
        """Let DDP go on: with the sums, or with zeros where they are not good."""
        buckets, self._buckets = self._buckets, []
        for buffer, _, future in buckets:
            future.set_result(buffer if good else buffer.zero_())

    def clear(self) -> None:
        """Forget what a pass has left that did not come to its end."""
        self._buckets = []
