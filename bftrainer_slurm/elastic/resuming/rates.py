"""Learning rates of torch's own schedulers in a script's own loop: they follow samples, not steps.

Seen with torch 2.13. A state counts steps of the ranks that wrote it. What the script gave its
scheduler then and what it gives now show whether the horizon follows the ranks (``epochs *
len(loader)``): if so, the scheduler goes on at the same part of the new horizon. One that counts
epochs, or a number of steps that is the same on any ranks, is left alone. One that holds no number,
as a LambdaLR, or that consists of others is left alone too, and the job's log says so, as of one
that is made at a step (``last_epoch=``) of other ranks. A framework's own loads are left alone:
accelerate's own steps once a rank, the others are looked after by the modules beside this one.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from types import ModuleType
from typing import Any

from torch.optim.lr_scheduler import LambdaLR

from bftrainer_slurm.elastic import resuming
from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory import of_agent

_NOTE = "_bftrainer"  # in a state: for how many ranks it is, and what its scheduler was given
_OWN_WAY = ("accelerate", "lightning", "pytorch_lightning", "transformers")
_WHOLE = "torch.optim.lr_scheduler"  # a scheduler of schedulers: a part of it is never moved
_PROGRESS = ("last_epoch", "_step_count", "_last_lr", "optimizer", "base_lrs", _NOTE)
_WITHOUT = "a rate is left as it is"
_WITH_A_STATE = ("LRScheduler", "LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler")
_TOLERANCE = 0.25  # of the ratio of ranks: a warm-up may have a length of its own


def change(module: ModuleType) -> None:
    """Change the schedulers of ``torch.optim.lr_scheduler``.

    Raises:
        AttributeError: this version's are others.
    """
    for name in _WITH_A_STATE:
        kind = getattr(module, name)
        around(kind, "state_dict", _state)
        around(kind, "load_state_dict", _load)
    around(module.LRScheduler, "__init__", _make)


def _make(method: Callable[..., None], scheduler: Any, *given: Any, **named: Any) -> None:
    method(scheduler, *given, **named)
    bound = signature(method).bind(scheduler, *given, **named).arguments
    if bound.get("last_epoch", -1) > 0:
        resuming.guarded(lambda: _look_at_made(scheduler), _WITHOUT)


def _look_at_made(scheduler: Any) -> None:
    memory = of_agent(os.environ)
    then = 0 if memory is None else int(memory.past.ranks)
    if then not in (0, _ranks()):
        _say_that_it_counts_steps(scheduler, then)


def _state(method: Callable[..., Any], scheduler: Any) -> Any:
    state = {name: value for name, value in method(scheduler).items() if name != _NOTE}
    # The state of one that has not begun may be a pattern to load another one into.
    if _step(scheduler) > 0:
        resuming.guarded(lambda: state.update({_NOTE: _note(scheduler)}), _WITHOUT)
    return state


def _load(method: Callable[..., Any], scheduler: Any, state_dict: Any) -> Any:
    caller = sys._getframe(2).f_globals.get("__name__", "")  # ``around`` is between
    note = state_dict.get(_NOTE)
    state = {name: value for name, value in state_dict.items() if name != _NOTE}
    if not note or caller == _WHOLE or caller.split(".")[0] in _OWN_WAY:
        return method(scheduler, state)
    fresh: dict[str, float] = {}
    resuming.guarded(lambda: fresh.update(given(scheduler)), _WITHOUT)
    as_given = {name: value for name, value in vars(scheduler).items() if name not in _PROGRESS}
    loaded = method(scheduler, state)
    resuming.guarded(lambda: _place(scheduler, note, fresh, as_given), _WITHOUT)
    return loaded


def _note(scheduler: Any) -> dict[str, Any]:
    return {"ranks": _ranks(), "step": _step(scheduler), "given": given(scheduler)}


def _place(
    scheduler: Any,
    note: Mapping[str, Any],
    fresh: Mapping[str, float],
    as_given: Mapping[str, Any],
) -> None:
    """Put a scheduler to the place of its state, if its horizon follows the ranks."""
    then, ranks, step, given = note["ranks"], _ranks(), _step(scheduler), note["given"]
    differs = [name for name in fresh if name in given and fresh[name] != given[name]]
    same_horizon = bool(fresh) and not differs
    if then == ranks or note["step"] != step or same_horizon:
        return
    part = scaled([(given[one], fresh[one]) for one in differs], then / ranks) if differs else None
    if part is None or not can_move(scheduler):
        _say_that_it_counts_steps(scheduler, then)
        return
    vars(scheduler).update(as_given)
    at = int(step * part)
    move(scheduler, at)
    resuming.helping.add(resuming.RATES)
    if _is_first():
        say(
            f"{type(scheduler).__name__} goes on at step {at:,} on {ranks} ranks, at the samples "
            f"of step {step:,} on {then} (--bftrainer=resume=no: not)"
        )


def _say_that_it_counts_steps(scheduler: Any, then: int) -> None:
    resuming.helping.add(resuming.RATES)  # all is said of it
    if _is_first():
        _say_once(
            f"{type(scheduler).__name__} counts steps of {then} ranks: if its length depends on "
            f"their number, the rate is off its course on {_ranks()}"
        )


@cache
def _say_once(line: str) -> None:
    say(line)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


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


def given(scheduler: Any) -> dict[str, float]:
    """Return the numbers that a script has given its scheduler, by their names.

    None for one whose rate depends on more than these, or one of whose parts' does.
    """
    parts = [given(one) for one in _parts(scheduler)]
    if not all(parts):
        return {}
    found = {f"{at}.{name}": value for at, one in enumerate(parts) for name, value in one.items()}
    for name, value in vars(scheduler).items():
        if name in ("milestones", "_milestones"):
            steps = sorted(value.elements() if isinstance(value, Counter) else value)
            found |= {f"{name}.{at}": step for at, step in enumerate(steps)}
        elif name[0] != "_" and name not in _PROGRESS and _is_number(value):
            found[name] = value
    return found


def _parts(scheduler: Any) -> list[Any]:
    """Return the schedulers that a SequentialLR or a ChainedScheduler consists of."""
    return list(getattr(scheduler, "_schedulers", ()))


def _step(scheduler: Any) -> int:
    """Return a scheduler's step; a ChainedScheduler's is that of its parts."""
    own = getattr(scheduler, "last_epoch", None)
    return _step(_parts(scheduler)[0]) if own is None else int(own)


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
    closed = _closed_form(scheduler)
    scheduler.last_epoch, scheduler._step_count = step, step + 1
    if isinstance(scheduler, LambdaLR):
        rules = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
        rates = [base * rule(step) for base, rule in rules]
    else:
        assert closed is not None
        rates = closed()
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = list(rates)
    return True


def can_move(scheduler: Any) -> bool:
    """Return whether its rate at a step follows from that step alone."""
    return isinstance(scheduler, LambdaLR) or _closed_form(scheduler) is not None


def _closed_form(scheduler: Any) -> Any:
    if type(scheduler).__name__ in ("OneCycleLR", "CyclicLR"):
        return scheduler.get_lr  # from the step alone
    return getattr(scheduler, "_get_closed_form_lr", None)
