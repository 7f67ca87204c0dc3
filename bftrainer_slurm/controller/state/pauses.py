"""What a change of size costs a trainer, and until when it pauses for one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from statistics import median

from bftrainer_slurm.controller.observe.reports import Runtime
from bftrainer_slurm.controller.state.measurements import Rescale
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Place

# The prior weighs as much as so many measured rescales: a single one that hung is not believed. It
# weighs one more for each ten minutes without a rescale: then another try is worth while.
_PRIOR_WEIGHS = 2
_FADES_S = 600.0
_MOST_COST_S = 120.0  # nobody can keep nodes by reporting long pauses


@dataclass(frozen=True, slots=True)
class RescaleCosts:
    """Seconds without progress: after a trainer grew, after it shrank, at a start without nodes."""

    up_s: float
    down_s: float
    start_s: float


# Until a trainer's own are measured. With torch 2.13 on CPUs.
PRIOR_COSTS = {
    Runtime.C10D: RescaleCosts(8.0, 7.0, start_s=8.0),
    Runtime.AGENT: RescaleCosts(0.3, 0.3, start_s=8.0),
    Runtime.WORKER: RescaleCosts(0.2, 0.2, start_s=8.0),
}


def cost_s(prior_s: float, measured: Sequence[Rescale], now_s: float) -> float:
    """Return what a change costs (seconds), as a median of what was measured and of the prior."""
    if not measured:
        return prior_s
    quiet_s = max(0.0, now_s - measured[-1].time_s)
    priors = [prior_s] * (_PRIOR_WEIGHS + int(quiet_s / _FADES_S))
    return min(median([*priors, *(one.seconds for one in measured)]), _MOST_COST_S)


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
