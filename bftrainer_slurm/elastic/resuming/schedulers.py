"""Puts a learning rate's scheduler to another step. It needs torch, and imports nothing."""

from __future__ import annotations

from typing import Any


def move(scheduler: Any, step: int) -> bool:
    """Put a scheduler of torch to a step, and its optimizer's rate with it.

    False: its rate at a step depends on those before, or on a metric; it is left as it is.
    """
    if not can_move(scheduler):
        return False
    rules, closed = getattr(scheduler, "lr_lambdas", None), _closed_form(scheduler)
    scheduler.last_epoch, scheduler._step_count = step, step + 1
    if rules is not None:
        rates = [base * rule(step) for base, rule in zip(scheduler.base_lrs, rules, strict=True)]
    else:
        assert closed is not None
        rates = closed()
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = list(rates)
    return True


def can_move(scheduler: Any) -> bool:
    """Return whether its rate at a step follows from that step alone."""
    return hasattr(scheduler, "lr_lambdas") or _closed_form(scheduler) is not None


def _closed_form(scheduler: Any) -> Any:
    if type(scheduler).__name__ in ("OneCycleLR", "CyclicLR"):
        return scheduler.get_lr  # from the step alone
    return getattr(scheduler, "_get_closed_form_lr", None)
