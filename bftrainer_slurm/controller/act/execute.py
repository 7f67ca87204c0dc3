"""Sends a turn's actions to Slurm, within a budget of time and number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from bftrainer_slurm.controller.act.groups import SILENT_S, Groups
from bftrainer_slurm.controller.decide.actions import ORDER, Action, Grow
from bftrainer_slurm.slurm.gateway import (
    JOB_SUBMIT,
    Gateway,
    RefusedError,
    may_be_job_submit,
)

logger = logging.getLogger(__name__)

# So many actions a turn, and then a pause, so that slurmctld gets 10 requests a second at most in
# the long run; one that slows our commands down, or refuses them, gets fewer.
MOST_ACTIONS = 50
_PAUSE_S = 5.0
BUDGET_S = 2.0  # after this time the controller reads notes and Slurm before it continues
_LEAST_S = 0.5  # a minimum, if waiting for elements to leave has used up the budget


def execute(
    actions: Iterable[Action],
    gateway: Gateway,
    clock: Callable[[], float],
    groups: Groups,
    began_s: float,
    note: Callable[[Action, str], None],
    most: float = MOST_ACTIONS,
    of: Callable[[int], AbstractContextManager[None]] = lambda array: nullcontext(),
) -> float | None:
    """Execute ``most`` actions, as far as the budget allows; it began at ``began_s``.

    ``note`` is called with each action that was tried, and Slurm's words if it has refused it. A
    refusal does not stop the others, nor does an error in what ``of`` runs for a trainer. A trainer
    without live elements begins a new rendezvous with its first element.

    Returns:
        After how many seconds the first action that was not tried can be tried; None: all were.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action may have been executed although
            ``note`` was not called.
    """
    again_in_s = None
    end_s = max(began_s + BUDGET_S, clock() + _LEAST_S)
    for tried, action in enumerate(sorted(actions, key=lambda one: ORDER.index(type(one)))):
        if tried >= most:
            return _PAUSE_S
        if clock() > end_s:
            return 0.0
        with of(action.array):
            if isinstance(action, Grow) and not _prepare_keeper(action, groups):
                again_in_s = SILENT_S
            else:
                _try(action, gateway, note)
    return again_in_s


def _try(action: Action, gateway: Gateway, note: Callable[[Action, str], None]) -> None:
    try:
        action.send(gateway)
        logger.info("%s", action)
        note(action, "")
    except RefusedError as error:
        hint = f"; {JOB_SUBMIT}" if may_be_job_submit(str(error)) else ""
        logger.warning("%s: %s%s", action, error, hint)
        note(action, str(error))
        done = tuple(one for one in action.elements if one not in error.elements)
        if error.elements and done:
            note(replace(action, elements=done), "")


def _prepare_keeper(grow: Grow, groups: Groups) -> bool:
    """Tell the keeper what new elements need to know; return whether it answered."""
    news = (grow.first, "ended"), (grow.new, "begins"), (grow.finished, "finished")
    return all(groups.say(grow.array, what) for due, what in news if due)
