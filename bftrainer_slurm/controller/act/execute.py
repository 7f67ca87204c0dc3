"""Carrying out a turn's actions within a budget of time, in spite of refusals.

``after`` returns the trainers' states that follow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bftrainer_slurm.controller.act.groups import Groups
from bftrainer_slurm.controller.act.pacing import Pacer
from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    EndAt,
    Grow,
    Hold,
    Revive,
    Shrink,
    Tell,
    Trim,
    array_of,
)
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, change, refuse, release
from bftrainer_slurm.model import nodes_of
from bftrainer_slurm.slurm.gateway import Gateway, RefusedError

logger = logging.getLogger(__name__)

BUDGET_S = 2.0  # after this time the controller listens and looks again before it goes on
_LEAST_S = 0.5  # for what frees nodes, if those that are asked to leave take all of the budget
_REFUSED_S = 30.0
# In this order: first what frees nodes; elements that are held too late start by themselves.
_VERBS: dict[type[Action], str] = {
    Shrink: "shrink",
    Hold: "hold",
    Cancel: "cancel the rest of",
    EndAt: "limit",
    Trim: "cancel",
    Revive: "bring back",
    Grow: "grow",
    Tell: "tell",
}
_ORDER = tuple(_VERBS)


@dataclass(slots=True)
class Results:
    """What became of a turn's actions.

    ``left`` were not tried: the budget was spent. There is credit for the first of them in
    ``again_in_s`` seconds. ``unheard`` tasks (by array) were not asked to leave: the keeper was not
    told.
    """

    done: list[Action] = field(default_factory=list)
    refused: list[Action] = field(default_factory=list)
    left: list[Action] = field(default_factory=list)
    again_in_s: float = 0.0
    unheard: Mapping[int, Sequence[int]] = field(default_factory=dict)


def execute(
    actions: Iterable[Action],
    asking: Mapping[int, Sequence[int]],
    gateway: Gateway,
    pacer: Pacer,
    groups: Groups,
    results: Results,
) -> None:
    """Carry out the decision as far as the budget allows; note the outcome in ``results``.

    First the tasks ``asking`` (by array) are asked to leave: they are to be ended. A trainer
    without live elements begins a new rendezvous with its first element.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action in no list may have been done.
    """
    in_order = sorted(actions, key=lambda action: _ORDER.index(type(action)))
    end_s = pacer.clock() + BUDGET_S
    results.unheard = groups.part(asking)
    end_s = max(end_s, pacer.clock() + _LEAST_S)
    for number, action in enumerate(in_order):
        rpcs = gateway.grow_rpcs if isinstance(action, Grow) else 1
        if not pacer.wait(rpcs, end_s - pacer.clock()):
            results.left += in_order[number:]
            results.again_in_s = pacer.due_in_s(rpcs, gateway.queue_rpcs)
            return
        if isinstance(action, Grow) and action.first:
            groups.end(action.elements[0].array)
        try:
            _do(action, gateway)
            logger.info("%s", describe(action))
            results.done.append(action)
        except RefusedError as error:
            logger.warning("%s: %s", describe(action), error)
            results.refused.append(action)
            results.done += _rest(action, error)


def _rest(action: Action, error: RefusedError) -> list[Action]:
    """The action for the elements that Slurm did not refuse, if it names those that it did."""
    if isinstance(action, Cancel) or not error.elements:
        return []
    done = tuple(one for one in action.elements if one not in error.elements)
    return [replace(action, elements=done)] if done else []


def describe(action: Action) -> str:
    """Describe an action in a few words, for the log."""
    verb = _VERBS[type(action)]
    if isinstance(action, Cancel):
        return f"{verb} {action.array}: {action.why.partition(chr(10))[0]}"
    names = ", ".join(map(str, action.elements))
    match action:
        case Grow(_, places):
            return f"{verb} {names} on {', '.join(sorted(nodes_of(places)))}"
        case EndAt(_, end_s):
            return f"{verb} {names} to {time.strftime('%H:%M:%S', time.localtime(end_s))}"
        case Tell(_, text):
            return f"{verb} {names}: {text}"
    return f"{verb} {names}: {action.why}"


def _do(action: Action, gateway: Gateway) -> None:
    match action:
        case Grow(elements, places, others, _, limit, excluded):
            gateway.grow(elements, nodes_of(places), others, limit, excluded=excluded)
        case Shrink(elements):
            gateway.shrink(elements)
        case Revive(elements):
            gateway.revive(elements)
        case Hold(elements):
            gateway.hold(elements)
        case EndAt(elements, end_s):
            gateway.end_at(elements, end_s)
        case Trim(elements):
            gateway.trim(elements)
        case Cancel(array):
            gateway.cancel(array)
        case Tell((element,), text):
            gateway.tell(element, text)


def after(
    states: Mapping[int, TrainerState], results: Results, now_s: float
) -> dict[int, TrainerState]:
    """Return the states (by array) that actions have changed.

    A refused action may still have happened, or a part of it: the next look tells.
    """
    changed: dict[int, TrainerState] = {}
    perhaps = [action for action in results.refused if isinstance(action, Grow | Tell)]
    for action in (*results.done, *perhaps):
        array = array_of(action)
        changed[array] = _done(changed.get(array, states[array]), action, now_s)
        if isinstance(action, Grow) and action in results.refused:
            changed[array] = refuse(changed[array], nodes_of(action.places), now_s + _REFUSED_S)
    return changed


def _done(state: TrainerState, action: Action, now_s: float) -> TrainerState:
    match action:
        case Grow(elements, places):
            return release(state, elements, places, now_s)
        case Shrink(elements):
            return change(state, elements, Phase.LEAVING, now_s)
        case Revive(elements):
            return change(state, elements, Phase.REVIVED, now_s)
        case Cancel():
            return replace(state, cancelled_s=now_s)
        case Tell():
            return replace(state, told=True)
    return state
