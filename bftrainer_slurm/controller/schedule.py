"""When to look at Slurm next: slowly by itself, soon after an element has said something."""

from __future__ import annotations

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import NoteKind

_AFTER_GONE_S = 0.15  # slurmctld has taken the node back by then
_AFTER_LEAVING_S = 3.0  # in case the word that it is gone does not arrive
_GAP_S = 0.5
_MAX_BACKOFF_S = 60.0
# A slow slurmctld is asked less often: so many times as long as the last look took lie between two
# regular looks, and between any two. Free nodes that nobody tells us of wait for a regular one.
_REST_AFTER_A_LOOK = 30.0
_GAP_AFTER_A_LOOK = 3.0
_MAX_INTERVAL_S = 60.0
# Anybody can send hints. So many looks may follow from them at once, then one each so many seconds.
_HINTED_LOOKS = 20.0
_A_HINTED_LOOK_S = 3.0


class Schedule:
    """The times (seconds of the loop's clock) of the next looks."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        self._settings = settings
        self._queue_due_s = self._nodes_due_s = self._reservations_due_s = now_s
        self._last_look_s = float("-inf")
        self._failures = 0
        self._took_s = 0.0
        self._slowed_to_s: float | None = None
        self._endings = 0
        self._regular_s = now_s  # when the next look is due without any hint
        self._hinted = _HINTED_LOOKS

    def due_s(self) -> float:
        """When the next look is due."""
        gap_s = max(_GAP_S, min(_MAX_BACKOFF_S, _GAP_AFTER_A_LOOK * self._took_s))
        return max(self._queue_due_s, self._last_look_s + gap_s)

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for a look, also where the clock was set back."""
        return now_s >= self.due_s() or now_s < self._last_look_s

    @property
    def slowed_to_s(self) -> float | None:
        """Seconds between regular looks, where slurmctld is slow; None where it is not."""
        return self._slowed_to_s

    def nodes_due(self, now_s: float) -> bool:
        """Whether this look should read the nodes too."""
        return now_s >= self._nodes_due_s or now_s < self._last_look_s

    def reservations_due(self, now_s: float) -> bool:
        """Whether this look should read the reservations too."""
        return now_s >= self._reservations_due_s or now_s < self._last_look_s

    def heard(self, kind: NoteKind, now_s: float) -> None:
        """Look sooner because of what an element said."""
        delay_s = {NoteKind.LEAVING: _AFTER_LEAVING_S, NoteKind.GONE: _AFTER_GONE_S}.get(kind, 0.0)
        if self._hinted < 1:
            delay_s = max(delay_s, _A_HINTED_LOOK_S)
        self._queue_due_s = min(self._queue_due_s, now_s + delay_s)

    def looked(
        self, now_s: float, nodes: bool, reservations: bool, ending: bool, took_s: float = 0.0
    ) -> None:
        """Plan the next look; a second from now, then more, while elements are still ending.

        ``took_s``: how many seconds this look had to wait for slurmctld.
        """
        earned = max(0.0, now_s - self._last_look_s) / _A_HINTED_LOOK_S
        self._hinted = min(_HINTED_LOOKS, self._hinted + earned) - (now_s < self._regular_s)
        self._last_look_s = now_s
        self._failures = 0
        self._endings = self._endings + 1 if ending else 0
        self._took_s = took_s
        rest_s = min(_MAX_INTERVAL_S, _REST_AFTER_A_LOOK * took_s)
        interval_s = max(self._settings.queue_interval_s, rest_s)
        self._slowed_to_s = rest_s if rest_s > self._settings.queue_interval_s else None
        if ending:
            interval_s = min(interval_s, 2.0 ** (self._endings - 1))
        self._queue_due_s = self._regular_s = now_s + interval_s
        if nodes:
            self._nodes_due_s = now_s + self._settings.nodes_interval_s
        if reservations:
            self._reservations_due_s = now_s + self._settings.reservations_interval_s

    def failed(self, now_s: float) -> None:
        """slurmctld does not answer: ask again later, and less and less often."""
        self._failures += 1
        self._last_look_s = now_s
        self._queue_due_s = now_s + min(_MAX_BACKOFF_S, 2.0**self._failures)
