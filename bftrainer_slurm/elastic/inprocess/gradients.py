"""The gradients of a step: which are the average over all ranks, and in which order they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future


class Gradients:
    """The gradients of a model's parameters in a step.

    DDP averages those of a backward pass from its own output. Whatever else adds to a gradient
    makes it this rank's own again: a pass through the model itself, one under ``no_sync()``, or
    another one from an output that has had its pass. Changes in place, as by clipping, do not.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.known = {one for one in parameters if one.requires_grad}
        self.averaged: set[Tensor] = set()  # those to whose gradients nothing was added since
        self.added = False  # by any backward pass, since it was set to False
        for one in self.known:
            one.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

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
    ``places`` has each parameter's place, by id.
    """

    def __init__(self, places: Mapping[int, int]) -> None:
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
                parts[self._places[id(parameters[0])]] = buffer
                continue
            sizes = [one.numel() for one in parameters]
            for one, part in zip(parameters, torch.split(buffer, sizes), strict=True):
                parts[self._places[id(one)]] = part
        return [parts[place] for place in sorted(parts)]

    def give(self, good: bool) -> None:
        """Let DDP go on: with the sums, or with zeros where they are not good."""
        buckets, self._buckets = self._buckets, []
        for buffer, _, future in buckets:
            future.set_result(buffer if good else buffer.zero_())

    def clear(self) -> None:
        """Forget what a pass has left that did not come to its end."""
        self._buckets = []
