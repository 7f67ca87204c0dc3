"""Carrying out a turn's actions, paced, each refusal logged and survived."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bftrainer_slurm.controller.actions import (
    Action,
    Cancel,
    Grow,
    Hold,
    Lengthen,
    Revive,
    Shrink,
)
from bftrainer_slurm.controller.groups import Groups
from bftrainer_slurm.slurm.gateway import Gateway, RefusedError

logger = logging.getLogger(__name__)

BURST = 20  # RPCs; slurmctld's own rate limit (rl_enable) allows a user 30 at once


@dataclass(slots=True)
class Pacer:
    """Lets commands of ``BURST`` RPCs go at once, and ``per_s`` RPCs a second after that."""

    per_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    _credit: float = BURST
    _last_s: float | None = None

    def wait(self, rpcs: int = 1) -> None:
        """Return when a command of so many RPCs may be sent."""
        now_s = self.clock()
        earned = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s) * self.per_s
        self._credit = min(BURST, self._credit + earned) - rpcs
        self._last_s = now_s
        if self._credit < 0:
            self.sleep(-self._credit / self.per_s)


@dataclass(slots=True)
class Deeds:
    """What became of a turn's actions; what is in neither list was not tried."""

    done: list[Action] = field(default_factory=list)
    refused: list[Action] = field(default_factory=list)


def carry_out(
    actions: Iterable[Action], gateway: Gateway, pacer: Pacer, groups: Groups, deeds: Deeds
) -> None:
    """Do what was decided, those that take nodes away first; note in ``deeds`` what came of it.

    Who is to leave is asked to do so before it is ended. A trainer that has nothing alive begins a
    new rendezvous with its first element.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; what is left was not tried.
    """
    in_order = sorted(actions, key=lambda action: isinstance(action, Grow))
    groups.part(_leaving(in_order))
    begun: set[int] = set()
    for action in in_order:
        if isinstance(action, Grow) and action.first and action.element.array not in begun:
            begun.add(action.element.array)
            groups.end(action.element.array)
        pacer.wait(gateway.grow_rpcs if isinstance(action, Grow) else 1)
        try:
            _do(action, gateway)
            logger.info("%s", describe(action))
            deeds.done.append(action)
        except RefusedError as error:
            logger.warning("%s: %s", describe(action), error)
            deeds.refused.append(action)


def describe(action: Action) -> str:
    """Say an action in a few words, for the log."""
    match action:
        case Grow(element, node):
            return f"grow {element} on {node}"
        case Shrink(elements, why):
            return f"shrink {_names(elements)}: {why}"
        case Revive(elements):
            return f"bring back {_names(elements)}: failed"
        case Hold(elements):
            return f"hold {_names(elements)} again"
        case Lengthen(elements, minutes):
            return f"lengthen {_names(elements)} to {minutes} minutes"
        case Cancel(array, why):
            return f"cancel the rest of {array}: {why.partition(chr(10))[0]}"


def _do(action: Action, gateway: Gateway) -> None:
    match action:
        case Grow(element, node, _, minutes):
            gateway.grow(element, node, minutes)
        case Shrink(elements):
            gateway.shrink(elements)
        case Revive(elements):
            gateway.revive(elements)
        case Hold(elements):
            gateway.hold(elements)
        case Lengthen(elements, minutes):
            gateway.lengthen(elements, minutes)
        case Cancel(array):
            gateway.cancel(array)


def _leaving(actions: Iterable[Action]) -> dict[int, list[int]]:
    """The tasks to be ended, by array."""
    tasks: dict[int, list[int]] = {}
    for action in actions:
        if isinstance(action, Shrink):
            for element in action.elements:
                tasks.setdefault(element.array, []).append(element.task)
    return tasks


def _names(elements: Iterable[object]) -> str:
    return ", ".join(str(element) for element in elements)
