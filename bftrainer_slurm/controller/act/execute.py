"""Sends a turn's actions to Slurm, within a budget of time and number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from bftrainer_slurm.controller.act.groups import SILENT_S, Groups
from bftrainer_slurm.controller.decide.actions import ORDER, Action, Grow
from bftrainer_slurm.slurm.gateway import Gateway, RefusedError
from bftrainer_slurm.slurm.pacer import Pacer

logger = logging.getLogger(__name__)

BUDGET_S = 2.0  # after this time the controller reads notes and Slurm before it continues
_LEAST_S = 0.5  # a minimum, if waiting for elements to leave has used up the budget


def execute(
    actions: Iterable[Action],
    gateway: Gateway,
    pacer: Pacer,
    groups: Groups,
    began_s: float,
    note: Callable[[Action, bool], None],
) -> float | None:
    """Execute actions as far as the budget allows; it began at ``began_s`` (the pacer's clock).

    ``note`` is called with each action that was tried, and whether Slurm has refused it. A refusal
    does not stop the others. A trainer without live elements begins a new rendezvous with its first
    element.

    Returns:
        After how many seconds the first action that was not tried can be tried; None: all were.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action may have been executed although
            ``note`` was not called.
    """
    again_in_s = None
    end_s = max(began_s + BUDGET_S, pacer.clock() + _LEAST_S)
    for action in sorted(actions, key=lambda action: ORDER.index(type(action))):
        rpcs = gateway.grow_rpcs if isinstance(action, Grow) else 1
        if not pacer.wait(rpcs, end_s - pacer.clock()):
            return pacer.due_in_s(rpcs, gateway.queue_rpcs)
        if isinstance(action, Grow) and not _prepare_keeper(action, groups):
            again_in_s = SILENT_S
            continue
        try:
            action.send(gateway)
            logger.info("%s", action)
            note(action, False)
        except RefusedError as error:
            logger.warning("%s: %s", action, error)
            note(action, True)
            done = tuple(one for one in action.elements if one not in error.elements)
            if error.elements and done:
                note(replace(action, elements=done), False)
    return again_in_s


def _prepare_keeper(grow: Grow, groups: Groups) -> bool:
    """Tell the keeper what new elements need to know; return whether it answered."""
    messages = (grow.first, groups.end), (grow.new, groups.begin), (grow.finished, groups.finish)
    return all(send(grow.array) for due, send in messages if due)
