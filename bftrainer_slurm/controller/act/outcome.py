"""From what became of actions to the states of the trainers that they were about. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bftrainer_slurm.controller.act.execute import Results
from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    Grow,
    Revive,
    Shrink,
    array_of,
)
from bftrainer_slurm.controller.state.element import Phase
from bftrainer_slurm.controller.state.trainer import TrainerState, change, refuse, release

_REFUSED_S = 30.0


def after(
    states: Mapping[int, TrainerState], results: Results, now_s: float
) -> dict[int, TrainerState]:
    """Return the states (by array) that actions have changed.

    What is refused may be done all the same, or a part of it: the next look tells.
    """
    changed: dict[int, TrainerState] = {}
    for action in results.done:
        array = array_of(action)
        changed[array] = _done(changed.get(array, states[array]), action, now_s)
    for action in results.refused:
        array = array_of(action)
        if isinstance(action, Grow):
            state = _done(changed.get(array, states[array]), action, now_s)
            changed[array] = refuse(state, action.nodes, now_s + _REFUSED_S)
    return changed


def _done(state: TrainerState, action: Action, now_s: float) -> TrainerState:
    match action:
        case Grow(elements, nodes):
            return release(state, elements, nodes, now_s)
        case Shrink(elements):
            return change(state, elements, Phase.LEAVING, now_s)
        case Revive(elements):
            return change(state, elements, Phase.REVIVED, now_s)
        case Cancel():
            return replace(state, cancelled_s=now_s)
    return state
