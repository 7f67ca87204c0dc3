"""Carrying out a turn's actions, in spite of refusals, within a budget of time and number.

``after`` returns a trainer's state that follows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from bftrainer_slurm.controller.act.groups import SILENT_S, Groups
from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    EndAt,
    Grow,
    Hold,
    Label,
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
from bftrainer_slurm.slurm.pacer import Pacer

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
    Label: "write the comment again of",
    Tell: "tell",
}
_ORDER = tuple(_VERBS)


def execute(
    actions: Iterable[Action],
    gateway: Gateway,
    pacer: Pacer,
    groups: Groups,
    began_s: float,
    note: Callable[[Action, bool], None],
) -> float | None:
    """Carry out the decision as far as the budget allows, which began then (the pacer's clock).

    ``note`` is told of each action that was tried, and whether Slurm has refused it. A trainer
    without live elements begins a new rendezvous with its first element.

    Returns:
        In how many seconds the first action that was not tried can be; None: all were.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action that was not noted may have been
            done.
    """
    again_in_s = None
    end_s = max(began_s + BUDGET_S, pacer.clock() + _LEAST_S)
    for action in sorted(actions, key=lambda action: _ORDER.index(type(action))):
        rpcs = gateway.grow_rpcs if isinstance(action, Grow) else 1
        if not pacer.wait(rpcs, end_s - pacer.clock()):
            return pacer.due_in_s(rpcs, gateway.queue_rpcs)
        if isinstance(action, Grow) and not _told(action, groups):
            again_in_s = SILENT_S
            continue
        try:
            _do(action, gateway)
            logger.info("%s", describe(action))
            note(action, False)
        except RefusedError as error:
            logger.warning("%s: %s", describe(action), error)
            note(action, True)
            if (done := _rest(action, error)) is not None:
                note(done, False)
    return again_in_s


def _told(grow: Grow, groups: Groups) -> bool:
    """Tell the keeper what elements must find when they start; return whether it was heard."""
    array = array_of(grow)
    if grow.first and not groups.end(array):
        return False
    if grow.new and not groups.begin(array):
        return False
    return not grow.finished or groups.finish(array)


def _rest(action: Action, error: RefusedError) -> Action | None:
    """The action for the elements that Slurm did not refuse, if it names those that it did."""
    if isinstance(action, Cancel) or not error.elements:
        return None
    done = tuple(one for one in action.elements if one not in error.elements)
    return replace(action, elements=done) if done else None


def describe(action: Action) -> str:
    """Describe an action in a few words, for the log."""
    verb = _VERBS[type(action)]
    if isinstance(action, Cancel):
        return f"{verb} {action.array}: {action.why.partition(chr(10))[0]}"
    names = ", ".join(map(str, action.elements))
    match action:
        case Grow(_, places, part=part):
            of = f"{part.gpus} GPUs of " if part else ""
            return f"{verb} {names} on {of}{', '.join(sorted(nodes_of(places)))}"
        case EndAt(_, end_s):
            return f"{verb} {names} to {time.strftime('%H:%M:%S', time.localtime(end_s))}"
        case Tell(_, text) | Label(_, text):
            return f"{verb} {names}: {text}"
    return f"{verb} {names}: {action.why}"


def _do(action: Action, gateway: Gateway) -> None:
    match action:
        case Grow(elements, places, others, _, limit, excluded, part=part):
            nodes = nodes_of(places)
            gateway.grow(elements, nodes, others, limit, excluded=excluded, part=part)
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
        case Label(elements, comment):
            gateway.label(elements, comment)
        case Tell((element,), text):
            gateway.tell(element, text)


def after(state: TrainerState, action: Action, refused: bool, now_s: float) -> TrainerState:
    """Return the state of its trainer after an action.

    A refused growth may still have happened, or a part of it: the next look tells.
    """
    match action:
        case Grow(elements, places):
            state = release(state, elements, places, now_s)
            return refuse(state, nodes_of(places), now_s + _REFUSED_S) if refused else state
        case Tell():
            return replace(state, notified=True)
        case Shrink(elements) if not refused:
            return change(state, elements, Phase.LEAVING, now_s)
        case Revive(elements) if not refused:
            return change(state, elements, Phase.REVIVED, now_s)
        case Trim(elements) if not refused:
            return change(state, elements, Phase.DONE, now_s)
        case Cancel() if not refused:
            return replace(state, cancelled_s=now_s)
    return state
