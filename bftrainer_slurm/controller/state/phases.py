"""The life of an element: one table of phases, and the controller's record of the element.

``decide.reconcile`` says what to do about a phase. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from bftrainer_slurm.model import Element, ElementId, ElementState, Place

EXITED = "NonZeroExitCode"  # Slurm's reason if the script itself has failed
_NOTE_FITS_S = 60.0  # between Slurm's time of a start or an end, and the element's own report


class Phase(Enum):
    """The phase of an element, as the controller sees it."""

    HELD = "held"  # waits for the controller
    WITHHELD = "withheld"  # an operator holds it
    ASTRAY = "astray"  # waits, though the controller has not released it
    RELEASED = "released"  # released by the controller; Slurm has not started it yet
    RUNNING = "running"
    SUSPENDED = "suspended"  # an operator has stopped it on its node
    LEAVING = "leaving"  # still runs, but the controller has ended it
    ENDING = "ending"  # Slurm ends its processes; its node is not free yet
    RECLAIMED = "reclaimed"  # waits with a begin time, and would start again by itself
    FAILED = "failed"  # its script, or its node, has failed
    UNLAUNCHED = "unlaunched"  # Slurm could not start its script: nothing of it has failed
    MUTE = "mute"  # has ended, and never said that it was up: its node may lack our plugin
    PREEMPTED = "preempted"  # cancelled for another job: nothing of it has failed
    REVIVED = "revived"  # held, brought back after it had failed, or was cancelled for another job
    DONE = "done"  # it ended well, or was cancelled


# The phase that follows from what Slurm says alone ...
_SAID = {
    ElementState.HELD: Phase.HELD,
    ElementState.WITHHELD: Phase.WITHHELD,
    ElementState.PENDING: Phase.ASTRAY,
    ElementState.DELAYED: Phase.RECLAIMED,
    ElementState.RUNNING: Phase.RUNNING,
    ElementState.SUSPENDED: Phase.SUSPENDED,
    ElementState.ENDING: Phase.ENDING,
    ElementState.COMPLETED: Phase.DONE,
    ElementState.FAILED: Phase.FAILED,
    ElementState.CANCELLED: Phase.DONE,
    ElementState.PREEMPTED: Phase.PREEMPTED,
    ElementState.LOST: Phase.DONE,
}
# ... and the phase that also follows from what the controller did before, for so many seconds. If
# Slurm has not acted by then, the request did not reach it.
_AFTER = {
    (Phase.RELEASED, ElementState.PENDING): (Phase.RELEASED, math.inf),
    (Phase.LEAVING, ElementState.RUNNING): (Phase.LEAVING, 30.0),
    (Phase.REVIVED, ElementState.FAILED): (Phase.REVIVED, 30.0),
    (Phase.REVIVED, ElementState.COMPLETED): (Phase.REVIVED, 30.0),
    (Phase.REVIVED, ElementState.PREEMPTED): (Phase.REVIVED, 30.0),
    (Phase.REVIVED, ElementState.HELD): (Phase.REVIVED, 300.0),
}
# Phases that keep the start of the phase before: a failure, and the rest after an end.
_AS_LONG = {
    (Phase.REVIVED, Phase.FAILED),
    (Phase.REVIVED, Phase.UNLAUNCHED),
    (Phase.REVIVED, Phase.MUTE),
    (Phase.RECLAIMED, Phase.HELD),
}
# It may have run between two looks.
_WENT = (Phase.RECLAIMED, Phase.PREEMPTED, Phase.FAILED, Phase.DONE)
GOES = (Phase.LEAVING, Phase.ENDING)  # from its node
OCCUPIES = (Phase.RUNNING, Phase.SUSPENDED, *GOES)  # its node
# Over, and to be brought back.
BROKEN = (Phase.FAILED, Phase.UNLAUNCHED, Phase.MUTE, Phase.PREEMPTED)
CAN_START = (Phase.HELD, Phase.REVIVED, Phase.RECLAIMED)


@dataclass(frozen=True, slots=True)
class ElementRecord:
    """What is known of an element since ``since_s``, when its phase began.

    ``node`` is where it is. A released one may start in any of the ``targets``. ``ours`` is true if
    the controller has ended it. ``up`` and ``down_s`` are its own reports: on which node it came up
    and when, and when it left. ``asked`` is true if it was asked to leave this node, and has to be
    ended: it does nothing there any more. ``sent`` is true if the controller released it there,
    ``ran`` if its script did start, ``blamed`` if its silence or slow end already counts against
    its node. ``reason`` is why it waits, in Slurm's word.
    """

    phase: Phase
    since_s: float
    node: str | None = None
    start_s: float | None = None
    targets: frozenset[Place] = frozenset()
    ours: bool = False
    asked: bool = False
    up: tuple[str, float] | None = None
    down_s: float | None = None
    sent: bool = False
    ran: bool = False
    blamed: bool = False
    reason: str = ""

    @property
    def there(self) -> bool:
        """Whether it has a node."""
        return self.phase in OCCUPIES and self.node is not None

    @property
    def mute(self) -> bool:
        """Whether it was released there, and has not said that it is up."""
        return self.sent and not self.ran

    def may_start_on(self, node: str) -> bool:
        """Whether it was released for a place on this node."""
        return any(place.node == node for place in self.targets)


HELD = ElementRecord(Phase.HELD, float("-inf"))


@dataclass(frozen=True, slots=True)
class Began:
    """An element has come up on a node."""

    element: ElementId
    node: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """An element has left its node. ``how`` is shrank, reclaimed, or ended (by itself).

    ``took_s`` is how long it was seen ending; ``well`` is true if its script has succeeded.
    """

    element: ElementId
    node: str
    time_s: float
    how: str
    took_s: float = 0.0
    well: bool = False

    @property
    def lost(self) -> bool:
        """Whether it is gone unasked, and the others of its group cannot know."""
        return self.how != "shrank" and not self.well

    @property
    def began_s(self) -> float:
        """When it was told to leave, as far as was seen."""
        return self.time_s - self.took_s


Event = Began | Ended


def follow(
    before: ElementRecord,
    id_: ElementId,
    seen: Element | None,
    now_s: float,
    notes_arrive: bool = False,
) -> tuple[ElementRecord, list[Event]]:
    """Return the record after a look, and the events since the last one.

    ``seen`` is None if Slurm has forgotten the element. ``notes_arrive``: whether
    notes come through.
    """
    after = _record(before, _phase(before, seen, now_s, notes_arrive), seen, now_s)
    if before.there and after.there and before.node == after.node:
        return after, []
    events: list[Event] = []
    left = before
    if before.up is not None and before.phase is Phase.RELEASED and after.phase in _WENT:
        left = replace(before, phase=Phase.RUNNING, node=before.up[0])
        events.append(Began(id_, *before.up))
    if left.there and left.node is not None:
        events.append(_ended(left, left.node, id_, seen, now_s))
    if after.there and after.node is not None:
        start_s = _start_s(before, after, now_s)
        events.append(Began(id_, after.node, start_s))
        after = replace(after, start_s=start_s, up=None, down_s=None)
    return after, events


def _phase(before: ElementRecord, seen: Element | None, now_s: float, notes_arrive: bool) -> Phase:
    if seen is None:
        return Phase.DONE
    after, lasts_s = _AFTER.get((before.phase, seen.state), (None, 0.0))
    if after is not None and now_s - before.since_s <= lasts_s:
        return after
    phase = _SAID[seen.state]
    unlaunched = phase is Phase.FAILED and seen.perhaps_unlaunched and not before.ran
    if unlaunched:
        return Phase.UNLAUNCHED
    # What has an exit code has run: where our plugin is, it has said so before.
    exited = seen.state is ElementState.COMPLETED or seen.reason == EXITED
    knows = notes_arrive or before.phase is Phase.MUTE
    return Phase.MUTE if exited and before.mute and knows else phase


def _record(
    before: ElementRecord, phase: Phase, seen: Element | None, now_s: float
) -> ElementRecord:
    node = None if seen is None else seen.node
    if phase is Phase.RELEASED and seen is not None:
        return before if seen.reason == before.reason else replace(before, reason=seen.reason)
    goes_on = phase in OCCUPIES and before.there and node == before.node
    start_s = None if seen is None else seen.start_s
    if goes_on and before.start_s is not None:
        start_s = before.start_s
    if phase is before.phase and node == before.node:
        return before if start_s == before.start_s else replace(before, start_s=start_s)
    return ElementRecord(
        phase,
        before.since_s if phase is before.phase or (before.phase, phase) in _AS_LONG else now_s,
        node,
        start_s=start_s,
        ours=goes_on and before.ours and phase is not Phase.RUNNING,
        asked=goes_on and before.asked,
        up=before.up,
        down_s=before.down_s,
        sent=before.sent and phase in (*OCCUPIES, Phase.MUTE),
        ran=before.ran and phase in (*OCCUPIES, Phase.FAILED),
    )


def _ended(
    before: ElementRecord, node: str, id_: ElementId, seen: Element | None, now_s: float
) -> Ended:
    told = before.down_s is not None and now_s - before.down_s < _NOTE_FITS_S
    back = seen is not None and (not seen.state.over or seen.state is ElementState.PREEMPTED)
    return Ended(
        id_,
        node,
        time_s=before.down_s if told and before.down_s is not None else now_s,
        how="shrank" if before.ours else "reclaimed" if back else "ended",
        took_s=now_s - before.since_s if before.phase is Phase.ENDING else 0.0,
        well=seen is not None and seen.state is ElementState.COMPLETED,
    )


def _start_s(before: ElementRecord, after: ElementRecord, now_s: float) -> float:
    start_s = after.start_s if after.start_s is not None else now_s
    if before.up is None:
        return start_s
    node, told_s = before.up
    return told_s if node == after.node and abs(told_s - start_s) < _NOTE_FITS_S else start_s
