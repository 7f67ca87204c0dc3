"""Carrying out a turn's actions: paced, within a budget of time; refusals are survived.

What is known of trainers after it (``after``) is here too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bftrainer_slurm.controller.act.groups import Groups
from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    EndAt,
    Grow,
    Hold,
    Revive,
    Shrink,
    Trim,
    array_of,
)
from bftrainer_slurm.controller.state.element import Phase
from bftrainer_slurm.controller.state.trainer import TrainerState, change, refuse, release
from bftrainer_slurm.slurm.gateway import Gateway, RefusedError

logger = logging.getLogger(__name__)

BURST = 20  # RPCs; slurmctld's own rate limit (rl_enable) allows a user 30 at once
BUDGET_S = 2.0  # then the controller listens and looks again before it goes on
_REFUSED_S = 30.0
# In this order: what frees nodes comes first; what is held late starts again by itself.
_VERBS: dict[type[Action], str] = {
    Shrink: "shrink",
    Hold: "hold",
    Cancel: "cancel the rest of",
    EndAt: "limit",
    Trim: "cancel",
    Revive: "bring back",
    Grow: "grow",
}
_ORDER = tuple(_VERBS)


@dataclass(slots=True)
class Pacer:
    """Lets commands of ``BURST`` RPCs go at once, and ``per_s`` RPCs a second after that."""

    per_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    _credit: float = BURST
    _last_s: float | None = None

    def wait(self, rpcs: int, at_most_s: float) -> bool:
        """Wait until a command of so many RPCs may be sent; False where that takes too long."""
        now_s = self.clock()
        earned = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s) * self.per_s
        self._credit, self._last_s = min(BURST, self._credit + earned), now_s
        wait_s = max(0.0, (rpcs - self._credit) / self.per_s)
        if wait_s > at_most_s:
            return False
        if wait_s > 0:
            self.sleep(wait_s)
        self._credit -= rpcs
        return True


@dataclass(slots=True)
class Results:
    """What became of a turn's actions.

    ``left`` were not tried: the budget was spent. Another turn can do the first of them in
    ``again_in_s`` seconds.
    """

    done: list[Action] = field(default_factory=list)
    refused: list[Action] = field(default_factory=list)
    left: list[Action] = field(default_factory=list)
    again_in_s: float = 0.0


def execute(
    actions: Iterable[Action], gateway: Gateway, pacer: Pacer, groups: Groups, results: Results
) -> None:
    """Do what was decided, as far as the budget goes; note in ``results`` what came of it.

    Elements that are to leave are asked to leave before they are ended. A trainer that has nothing
    alive begins a new rendezvous with its first element.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action in no list may have been done.
    """
    in_order = sorted(actions, key=lambda action: _ORDER.index(type(action)))
    groups.part(_leaving(in_order))
    end_s = pacer.clock() + BUDGET_S
    for number, action in enumerate(in_order):
        rpcs = gateway.grow_rpcs if isinstance(action, Grow) else 1
        if not pacer.wait(rpcs, end_s - pacer.clock()):
            results.left += in_order[number:]
            results.again_in_s = max(0.0, rpcs / pacer.per_s - BUDGET_S)
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
    """The action for the elements that Slurm did not refuse, where it names those that it did."""
    if isinstance(action, Cancel) or not error.elements:
        return []
    done = tuple(one for one in action.elements if one not in error.elements)
    return [replace(action, elements=done)] if done else []


def describe(action: Action) -> str:
    """Say an action in a few words, for the log."""
    verb = _VERBS[type(action)]
    if isinstance(action, Cancel):
        return f"{verb} {action.array}: {action.why.partition(chr(10))[0]}"
    names = ", ".join(map(str, action.elements))
    match action:
        case Grow(_, nodes):
            return f"{verb} {names} on {', '.join(sorted(nodes))}"
        case EndAt(_, end_s):
            return f"{verb} {names} to {time.strftime('%H:%M:%S', time.localtime(end_s))}"
    return f"{verb} {names}: {action.why}"


def _do(action: Action, gateway: Gateway) -> None:
    match action:
        case Grow(elements, nodes, others, _, limit, excluded):
            gateway.grow(elements, nodes, others, limit, excluded=excluded)
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


def _leaving(actions: Iterable[Action]) -> dict[int, list[int]]:
    """The tasks to be ended, by array."""
    tasks: dict[int, list[int]] = {}
    for action in actions:
        if isinstance(action, Shrink):
            tasks.setdefault(array_of(action), []).extend(one.task for one in action.elements)
    return tasks


def after(
    states: Mapping[int, TrainerState], results: Results, now_s: float
) -> dict[int, TrainerState]:
    """Return the states (by array) that actions have changed.

    What is refused may be done all the same, or a part of it: the next look tells.
    """
    changed: dict[int, TrainerState] = {}
    grows = [action for action in results.refused if isinstance(action, Grow)]
    for action in (*results.done, *grows):
        array = array_of(action)
        changed[array] = _done(changed.get(array, states[array]), action, now_s)
    for action in grows:
        array = array_of(action)
        changed[array] = refuse(changed[array], action.nodes, now_s + _REFUSED_S)
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
