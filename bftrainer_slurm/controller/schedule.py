"""When to look at Slurm next: slowly by itself, soon after an element has said something."""

from __future__ import annotations

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import NoteKind

_AFTER_GONE_S = 0.15  # slurmctld has taken the node back by then
_AFTER_LEAVING_S = 3.0  # in case the word that it is gone does not arrive
_GAP_S = 0.5
_MAX_BACKOFF_S = 60.0


class Schedule:
    """The times (seconds of the loop's clock) of the next looks."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        self._settings = settings
        self._queue_due_s = self._nodes_due_s = self._reservations_due_s = now_s
        self._last_look_s = float("-inf")
        self._failures = 0
        self._endings = 0

    def due_s(self) -> float:
        """When the next look is due."""
        return max(self._queue_due_s, self._last_look_s + _GAP_S)

    def nodes_due(self, now_s: float) -> bool:
        """Whether this look should read the nodes too."""
        return now_s >= self._nodes_due_s

    def reservations_due(self, now_s: float) -> bool:
        """Whether this look should read the reservations too."""
        return now_s >= self._reservations_due_s

    def heard(self, kind: NoteKind, now_s: float) -> None:
        """Look sooner because of what an element said."""
        delay_s = {NoteKind.LEAVING: _AFTER_LEAVING_S, NoteKind.GONE: _AFTER_GONE_S}.get(kind, 0.0)
        self._queue_due_s = min(self._queue_due_s, now_s + delay_s)

    def looked(self, now_s: float, nodes: bool, reservations: bool, ending: bool) -> None:
        """Plan the next look; a second from now, then more, while elements are still ending."""
        self._last_look_s = now_s
        self._failures = 0
        self._endings = self._endings + 1 if ending else 0
        interval_s = self._settings.queue_interval_s
        if ending:
            interval_s = min(interval_s, 2.0 ** (self._endings - 1))
        self._queue_due_s = now_s + interval_s
        if nodes:
            self._nodes_due_s = now_s + self._settings.nodes_interval_s
        if reservations:
            self._reservations_due_s = now_s + self._settings.reservations_interval_s

    def failed(self, now_s: float) -> None:
        """slurmctld does not answer: ask again later, and less and less often."""
        self._failures += 1
        self._last_look_s = now_s
        self._queue_due_s = now_s + min(_MAX_BACKOFF_S, 2.0**self._failures)
