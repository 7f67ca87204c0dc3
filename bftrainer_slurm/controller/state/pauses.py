"""Until when a trainer pauses because nodes have joined or left it. Pure."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

from bftrainer_slurm.controller.state.profiles import RescaleCosts
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView


def note_change(
    view: TrainerView, had: Set[str] | None, costs: RescaleCosts, now_s: float
) -> TrainerState:
    """Return the state with the pause of a trainer whose nodes were ``had`` at the last look."""
    state, nodes = view.state, view.placed.keys()
    if not had or nodes == had:
        return state
    if not nodes:
        return replace(state, trained_s=now_s)
    until_s = _paused_until_s(view, nodes - had, now_s, costs)
    return replace(state, paused_until_s=max(state.paused_until_s, until_s))


def _paused_until_s(
    view: TrainerView, joined: Set[str], now_s: float, costs: RescaleCosts
) -> float:
    """Return when its pause ends, after these nodes have joined it, or others have left.

    A node may be seen late. A node that came as soon as the first ones, for example from another
    trainer, belongs to the start.
    """
    if not joined:
        return now_s + costs.down_s
    starts = {
        node: record.start_s
        for node, record in view.running().items()
        if record.start_s is not None
    }
    joined_s = min(now_s, max((starts[node] for node in joined & starts.keys()), default=now_s))
    others = view.placed.keys() - joined
    if all(starts.get(node, -math.inf) >= joined_s for node in others):
        return now_s
    return joined_s + costs.up_s
