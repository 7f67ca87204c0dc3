"""How the learning rate follows the global batch: the rule, its ramp, and its use in one step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch

RateRule = Literal["linear", "sqrt", "none"] | Callable[[float], float]

_RULES: dict[str, Callable[[float], float]] = {
    "linear": lambda times: times,
    "sqrt": math.sqrt,
    "none": lambda times: 1.0,
}


class Rate:
    """The factor for the script's learning rate, which is meant for one rank's batch.

    ``rule`` gives the factor for a global batch that is so many times larger; None: ``linear`` for
    SGD, ``sqrt`` for others, such as Adam. After a change the factor gets to its new value in
    ``ramp`` steps. It is the same on all ranks, so a newcomer needs its state.

    Between steps the rates are the script's own, so schedulers, checkpoints and newcomers see
    rates that do not depend on the world.
    """

    def __init__(self, rule: RateRule | None, ramp: int) -> None:
        if isinstance(rule, str) and rule not in _RULES:
            raise ValueError(f"rate is {', '.join(map(repr, _RULES))} or a function, not {rule!r}")
        if ramp < 0:
            raise ValueError("rate_ramp is a number of steps")
        self._rule = rule
        self._ramp = ramp
        self._present = 1.0
        self._target = 1.0
        self._left = 0  # steps until the target
        self._own: list[tuple[dict[str, Any], Any]] = []  # each scaled group's own rate

    def factor(self, times: float, optimizer: torch.optim.Optimizer) -> float:
        """Return the factor of the next step; call it once for each step."""
        target = self._follow(optimizer)(times)
        if target != self._target:
            self._target, self._left = target, max(1, self._ramp)
        if self._left:
            self._present += (self._target - self._present) / self._left
            self._left -= 1
        return self._present

    def apply(self, times: float, optimizer: torch.optim.Optimizer) -> None:
        """Multiply each group's rate until ``restore``, for a batch so many times larger."""
        factor = self.factor(times, optimizer)
        if factor == 1.0:
            return
        for group in optimizer.param_groups:
            own = group["lr"]
            self._own.append((group, own.clone() if isinstance(own, torch.Tensor) else own))
            if isinstance(own, torch.Tensor):
                own.mul_(factor)  # in place, as captured graphs hold this tensor
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

    def state_dict(self) -> dict[str, Any]:
        """Return where the ramp is."""
        return {"present": self._present, "target": self._target, "left": self._left}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self._present, self._target = state_dict["present"], state_dict["target"]
        self._left = state_dict["left"]

    def _follow(self, optimizer: torch.optim.Optimizer) -> Callable[[float], float]:
        rule = self._rule
        if rule is None:
            rule = "linear" if isinstance(optimizer, torch.optim.SGD) else "sqrt"
        return _RULES[rule] if isinstance(rule, str) else rule
