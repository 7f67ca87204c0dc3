"""The life cycle of an element: its phases, and the controller's record of the element. Pure.

``decide.reconcile`` decides what to do in each phase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from bftrainer_slurm.model import Element, ElementId, ElementState

EXITED = "NonZeroExitCode"  # Slurm's reason if the script itself has failed
# Slurm's time of a start or an end, and the element's own report of it, differ by less than this.
_NOTE_FITS_S = 60.0


class Phase(Enum):
    """The phase of an element from the controller's point of view."""

    HELD = "held"  # waits for the controller
    WITHHELD = "withheld"  # an operator holds it
    ASTRAY = "astray"  # pending, although the controller has not released it
    RELEASED = "released"  # released by the controller; Slurm has not started it yet
    RUNNING = "running"
    SUSPENDED = "suspended"  # an operator has stopped it on its node
    LEAVING = "leaving"  # the controller has ended it, but Slurm still shows it running
    ENDING = "ending"  # Slurm ends its processes; its node is not free yet
    RECLAIMED = "reclaimed"  # requeued with a begin time; Slurm would start it again by itself
    FAILED = "failed"  # its script or its node has failed
    UNLAUNCHED = "unlaunched"  # Slurm could not start its script; the element has not failed
    MUTE = "mute"  # ended without ever reporting that it was up: its node may lack our plugin
    PREEMPTED = "preempted"  # cancelled for another job; the element has not failed
    REVIVED = "revived"  # requeued and held after a failure, or after it was cancelled for a job
    DONE = "done"  # ended successfully, or was cancelled


# The phase that follows from Slurm's state alone ...
_PHASE_OF = {
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
# ... and the phase that follows if the controller has sent a request, for this many seconds. If
# Slurm has not acted by then, the request did not reach it.
_AFTER = {
    (Phase.RELEASED, ElementState.PENDING): (Phase.RELEASED, math.inf),
    (Phase.LEAVING, ElementState.RUNNING): (Phase.LEAVING, 30.0),
    (Phase.REVIVED, ElementState.FAILED): (Phase.REVIVED, 30.0),
    (Phase.REVIVED, ElementState.COMPLETED): (Phase.REVIVED, 30.0),
    (Phase.REVIVED, ElementState.PREEMPTED): (Phase.REVIVED, 30.0),
    (Phase.REVIVED, ElementState.HELD): (Phase.REVIVED, 300.0),
}
# Changes of phase that keep ``since_s``, the time of the failure or of the end.
_KEEP_SINCE = {
    (Phase.REVIVED, Phase.FAILED),
    (Phase.REVIVED, Phase.UNLAUNCHED),
    (Phase.REVIVED, Phase.MUTE),
    (Phase.RECLAIMED, Phase.HELD),
}
# A released element in one of these phases may have run between two looks.
_MAY_HAVE_RUN = (Phase.RECLAIMED, Phase.PREEMPTED, Phase.FAILED, Phase.DONE)
VACATES = (Phase.LEAVING, Phase.ENDING)  # its node
OCCUPIES = (Phase.RUNNING, Phase.SUSPENDED, *VACATES)  # its node
# The element has ended, and the controller requeues and holds it again.
BROKEN = (Phase.FAILED, Phase.UNLAUNCHED, Phase.MUTE, Phase.PREEMPTED)
CAN_START = (Phase.HELD, Phase.REVIVED, Phase.RECLAIMED)


@dataclass(frozen=True, slots=True)
class ElementRecord:
    """What the controller knows about an element. Times are Unix seconds."""

    phase: Phase
    since_s: float  # when the phase began
    node: str | None = None
    start_s: float | None = None
    targets: frozenset[str] = frozenset()  # where a released element may start
    ours: bool = False  # the controller has ended it
    cut: bool = False  # the keeper does not hear it, while others wait: it has to be ended
    asked: bool = False  # was asked to leave its node; does nothing there now, and has to be ended
    up: tuple[str, float] | None = None  # its own report: the node on which it came up, and when
    down_s: float | None = None  # its own report: when it left
    sent: bool = False  # the controller released it to its node
    ran: bool = False  # its script has started
    blamed: bool = False  # its silence or slow end already counts against its node
    reason: str = ""  # Slurm's reason why it waits

    @property
    def there(self) -> bool:
        """Whether the element has a node."""
        return self.phase in OCCUPIES and self.node is not None

    @property
    def mute(self) -> bool:
        """Whether the controller released the element, and it has not reported that it is up."""
        return self.sent and not self.ran

    def may_start_on(self, node: str) -> bool:
        """Whether the element was released for this node."""
        return node in self.targets


HELD = ElementRecord(Phase.HELD, float("-inf"))


@dataclass(frozen=True, slots=True)
class Began:
    """An element has come up on a node: on all of it, or on so many of its GPUs."""

    element: ElementId
    node: str
    time_s: float
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """An element has left its node."""

    element: ElementId
    node: str
    time_s: float
    how: str  # "shrank", "reclaimed", or "ended" (by itself)
    took_s: float = 0.0  # how long looks saw it ending
    well: bool = False  # its script has succeeded

    @property
    def began_s(self) -> float:
        """When it began to end, as far as looks have shown."""
        return self.time_s - self.took_s


Event = Began | Ended


def follow(
    before: ElementRecord,
    id_: ElementId,
    seen: Element | None,
    now_s: float,
    notes_arrive: bool = False,
) -> tuple[ElementRecord, list[Event]]:
    """Return the record after a look, and the events since the last look.

    ``seen`` is None if Slurm has forgotten the element. ``notes_arrive``: whether the stream of
    notes is open.
    """
    after = _record(before, _phase(before, seen, now_s, notes_arrive), seen, now_s)
    if before.there and after.there and before.node == after.node and not _again(before, seen):
        return after, []
    events: list[Event] = []
    gpus = 0 if seen is None else seen.gpus
    left = before
    if before.up is not None and before.phase is Phase.RELEASED and after.phase in _MAY_HAVE_RUN:
        left = replace(before, phase=Phase.RUNNING, node=before.up[0])
        events.append(Began(id_, *before.up, gpus))
    if left.there and left.node is not None:
        events.append(_ended(left, left.node, id_, seen, now_s))
    if after.there and after.node is not None:
        start_s = _start_s(before, after, now_s)
        events.append(Began(id_, after.node, start_s, gpus))
        after = replace(after, start_s=start_s, up=None, down_s=None)
    return after, events


def _phase(before: ElementRecord, seen: Element | None, now_s: float, notes_arrive: bool) -> Phase:
    if seen is None:
        return Phase.DONE
    after, lasts_s = _AFTER.get((before.phase, seen.state), (None, 0.0))
    if after is not None and now_s - before.since_s <= lasts_s:
        return after
    phase = _PHASE_OF[seen.state]
    unlaunched = phase is Phase.FAILED and seen.perhaps_unlaunched and not before.ran
    if unlaunched:
        return Phase.UNLAUNCHED
    # An element with an exit code has run. Where our plugin is loaded, it would have reported that.
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
    goes_on = goes_on and not _again(before, seen)
    start_s = None if seen is None else seen.start_s
    if goes_on and before.start_s is not None:
        start_s = before.start_s
    if phase is before.phase and node == before.node:
        return before if start_s == before.start_s else replace(before, start_s=start_s)
    return ElementRecord(
        phase,
        before.since_s if phase is before.phase or (before.phase, phase) in _KEEP_SINCE else now_s,
        node,
        start_s=start_s,
        ours=goes_on and before.ours and phase is not Phase.RUNNING,
        cut=goes_on and before.cut,
        asked=goes_on and before.asked,
        up=before.up,
        down_s=before.down_s,
        sent=before.sent and phase in (*OCCUPIES, Phase.MUTE),
        ran=before.ran and phase in (*OCCUPIES, Phase.FAILED),
    )


def _again(before: ElementRecord, seen: Element | None) -> bool:
    """Whether Slurm has started an element anew while no controller worked."""
    if before.since_s != -math.inf or before.start_s is None or seen is None:
        return False
    return seen.start_s is not None and seen.start_s - before.start_s >= _NOTE_FITS_S


def _ended(
    before: ElementRecord, node: str, id_: ElementId, seen: Element | None, now_s: float
) -> Ended:
    back = seen is not None and (not seen.state.over or seen.state is ElementState.PREEMPTED)
    return Ended(
        id_,
        node,
        time_s=_end_s(before, seen, now_s),
        how="shrank" if before.ours else "reclaimed" if back else "ended",
        took_s=now_s - before.since_s if before.phase is Phase.ENDING else 0.0,
        well=seen is not None and seen.state is ElementState.COMPLETED,
    )


def _end_s(before: ElementRecord, seen: Element | None, now_s: float) -> float:
    """Return when an allocation has ended: by its note, or about now.

    If an earlier controller has left the record, it may have been long ago: Slurm says when.
    """
    if before.down_s is not None and now_s - before.down_s < _NOTE_FITS_S:
        return before.down_s
    if seen is None or before.since_s != -math.inf:
        return now_s
    said_s = seen.end_s if seen.state.over else seen.queued_s
    return now_s if said_s is None else min(said_s, now_s)


def _start_s(before: ElementRecord, after: ElementRecord, now_s: float) -> float:
    start_s = after.start_s if after.start_s is not None else now_s
    if before.up is None:
        return start_s
    node, up_s = before.up
    return up_s if node == after.node and abs(up_s - start_s) < _NOTE_FITS_S else start_s
