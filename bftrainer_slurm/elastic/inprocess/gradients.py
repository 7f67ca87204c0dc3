"""Which gradients are the average over all ranks, and which are a rank's own, if only in part."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


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
