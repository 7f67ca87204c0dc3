"""Until when a trainer pauses because nodes have joined or left it. Pure."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

from bftrainer_slurm.controller.state.profiles import RescaleCosts
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Place


def note_change(
    view: TrainerView, had: Set[Place] | None, costs: RescaleCosts, now_s: float
) -> TrainerState:
    """Return the state with the pause of a trainer whose places were ``had`` at the last look."""
    state, places = view.state, view.places
    if not had or places == had:
        return state
    if not places:
        return replace(state, trained_s=now_s)
    until_s = _paused_until_s(view, places - had, now_s, costs)
    return replace(state, paused_until_s=max(state.paused_until_s, until_s))


def _paused_until_s(
    view: TrainerView, joined: Set[Place], now_s: float, costs: RescaleCosts
) -> float:
    """Return when its pause ends, after these places have joined it, or others have left.

    One may be seen late. One that came as soon as the first ones, for example from another trainer,
    belongs to the start.
    """
    if not joined:
        return now_s + costs.down_s
    starts = view.starts_s()
    joined_s = min(now_s, max((starts[place] for place in joined & starts.keys()), default=now_s))
    others = view.places - joined
    if all(starts.get(place, -math.inf) >= joined_s for place in others):
        return now_s
    return joined_s + costs.up_s
