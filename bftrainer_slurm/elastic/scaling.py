"""How the learning rate follows the global batch: the rule, and its use in one step only."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import torch


class Rate(Enum):
    """What the script's learning rate, meant for one rank's batch, is multiplied by."""

    LINEAR = "linear"  # by how many times larger the global batch is
    SQRT = "sqrt"  # by that number's square root
    NONE = "none"

    def factor(self, times: float) -> float:
        """Return the factor for a global batch that is ``times`` the script's."""
        if self is Rate.LINEAR:
            return times
        return math.sqrt(times) if self is Rate.SQRT else 1.0


class ScaledRate:
    """Scales an optimizer's learning rates while it steps.

    Between steps they are the script's own, so schedulers, checkpoints and newcomers see rates
    that do not depend on the world.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._own: list[tuple[dict[str, Any], Any]] = []

    def apply(self, factor: float) -> None:
        """Multiply each group's rate until ``restore``."""
        if factor == 1.0:
            return
        for group in self._optimizer.param_groups:
            own = group["lr"]
            self._own.append((group, own.clone() if isinstance(own, torch.Tensor) else own))
            if isinstance(own, torch.Tensor):
                own.mul_(factor)  # in place: captured graphs hold this very tensor
            else:
                group["lr"] = own * factor

    def restore(self) -> None:
        """Give each group its own rate back."""
        for group, own in self._own:
            if isinstance(own, torch.Tensor):
                group["lr"].copy_(own)
            else:
                group["lr"] = own
        self._own.clear()
