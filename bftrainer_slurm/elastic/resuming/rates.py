"""Learning rates of torch's own schedulers in a script's own loop: they follow samples, not steps.

Seen with torch 2.13. A state counts steps of the ranks that wrote it. What the script gave its
scheduler then and what it gives now show whether the horizon follows the ranks (``epochs *
len(loader)``): if so, the scheduler goes on at the same part of the new horizon. One that counts
epochs, or a number of steps that is the same on any ranks, is left alone. One that holds no number,
as a LambdaLR, is left alone too, and the job's log says so. A framework's own loads are left alone:
accelerate's own steps once a rank, the others are looked after by the modules beside this one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from bftrainer_slurm.elastic import resuming
from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say

_NOTE = "_bftrainer"  # in a state: for how many ranks it is, and what its scheduler was given
_OWN_WAY = ("accelerate", "lightning", "pytorch_lightning", "transformers")
_WHOLE = "torch.optim.lr_scheduler"  # a scheduler of schedulers: a part of it is never moved
_PROGRESS = ("last_epoch", "_step_count", "_last_lr", "optimizer", "base_lrs", _NOTE)
_WITHOUT = "a rate is left as it is"
_TOLERANCE = 0.25  # of the ratio of ranks: a warm-up may have a length of its own


def change(module: ModuleType) -> None:
    """Change the schedulers of ``torch.optim.lr_scheduler``.

    Raises:
        AttributeError: this version's are others.
    """
    for kind in (module.LRScheduler, module.LambdaLR):
        around(kind, "state_dict", _state)
        around(kind, "load_state_dict", _load)


def _state(method: Callable[..., Any], scheduler: Any) -> Any:
    state = {name: value for name, value in method(scheduler).items() if name != _NOTE}
    # The state of one that has not begun may be a pattern to load another one into.
    if scheduler.last_epoch > 0:
        resuming.guarded(lambda: state.update({_NOTE: _note(scheduler)}), _WITHOUT)
    return state


def _load(method: Callable[..., Any], scheduler: Any, state_dict: Any) -> Any:
    caller = sys._getframe(2).f_globals.get("__name__", "")  # ``around`` is between
    note = state_dict.get(_NOTE)
    state = {name: value for name, value in state_dict.items() if name != _NOTE}
    if not note or caller == _WHOLE or caller.split(".")[0] in _OWN_WAY:
        return method(scheduler, state)
    fresh: dict[str, float] = {}
    resuming.guarded(lambda: fresh.update(_given(scheduler)), _WITHOUT)
    as_given = {name: value for name, value in vars(scheduler).items() if name not in _PROGRESS}
    loaded = method(scheduler, state)
    resuming.guarded(lambda: _place(scheduler, note, fresh, as_given), _WITHOUT)
    return loaded


def _note(scheduler: Any) -> dict[str, Any]:
    return {"ranks": _ranks(), "step": scheduler.last_epoch, "given": _given(scheduler)}


def _place(
    scheduler: Any,
    note: Mapping[str, Any],
    fresh: Mapping[str, float],
    as_given: Mapping[str, Any],
) -> None:
    """Put a scheduler to the place of its state, if its horizon follows the ranks."""
    then, ranks, step, given = note["ranks"], _ranks(), scheduler.last_epoch, note["given"]
    differs = [name for name in fresh if name in given and fresh[name] != given[name]]
    same_horizon = bool(fresh) and not differs
    if then == ranks or note["step"] != step or same_horizon:
        return
    name, first = type(scheduler).__name__, os.environ.get("RANK", "0") == "0"
    part = scaled([(given[one], fresh[one]) for one in differs], then / ranks) if differs else None
    if part is None or not can_move(scheduler):
        if first:
            _say_once(
                f"{name} counts steps of {then} ranks: if its length depends on their number, the "
                f"rate is off its course on {ranks}"
            )
        return
    vars(scheduler).update(as_given)
    at = int(step * part)
    move(scheduler, at)
    resuming.helping.add(resuming.RATES)
    if first:
        say(
            f"{name} goes on at step {at:,} on {ranks} ranks, at the samples of step {step:,} on "
            f"{then} (--bftrainer=resume=no: not)"
        )


@cache
def _say_once(line: str) -> None:
    say(line)


def scaled(numbers: list[tuple[float, float]], ranks: float) -> float | None:
    """Return by what to multiply a step; None: the numbers do not follow the ranks.

    It is never more than the part of the samples, so that no script makes more steps than its
    horizon has.

    Args:
        numbers: what a scheduler was given then, and is given now, where they differ.
        ranks: those then, by those now.
    """
    ratios = [now / then if then > 0 else 0.0 for then, now in numbers]
    follow = all((one < 1) == (ranks < 1) and abs(one / ranks - 1) < _TOLERANCE for one in ratios)
    return min(*ratios, ranks) if follow else None


def _given(scheduler: Any) -> dict[str, float]:
    """Return the numbers that a script has given its scheduler, by their names."""
    return {
        name: value
        for name, value in vars(scheduler).items()
        if name[0] != "_" and name not in _PROGRESS and _is_number(value)
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ranks() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


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
