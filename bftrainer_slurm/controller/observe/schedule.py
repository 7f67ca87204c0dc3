"""Decides when to read Slurm ("look") next: at slow intervals, and soon after a note arrives."""

from __future__ import annotations

import logging
import math
from collections.abc import Set
from dataclasses import dataclass

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import NoteKind

logger = logging.getLogger(__name__)

_AFTER_GONE_S = 0.15  # by then slurmctld has taken the node back
_AFTER_LEAVING_S = 3.0  # in case the element's GONE note does not arrive
# A large job's nodes become idle one after another: after many joins, more nodes may follow soon.
_MANY_JOINS, _AFTER_JOINS_S = 16, 2.0
_GAP_S = 0.5
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 2.0, 60.0
# Trainers leave this long before a backfill pass; longer if elements take long to end, for example
# because of an Epilog. A job submitted within this time may find its nodes not yet empty.
LEAD_S, _MAX_LEAD_S = 3.0, 15.0
_UNTIL_IT_ENDS_S = 1.0  # from the order to leave until a look sees the element end
# Looks around a pass, relative to its earliest start; Slurm gives starts in whole seconds. In the
# last second before a pass, only elements leave that end at once, without their grace time.
_AROUND_A_PASS_S = (-LEAD_S, -2.0, -1.0, 1.2, 3.0)
_ALSO, _ALSO_AT = frozenset({"nodes", "reservations"}), 4  # at every fourth regular look
_FIRST_ENDING_S = 1.0  # the interval while elements end; doubled by each look up to the regular one
# A slow slurmctld is read less often. The time between two regular looks is at least the first
# factor times the duration of the last look; between any two looks, the second factor. Free nodes
# that no element has reported wait for a regular look.
_REST_AFTER_A_LOOK = 30.0
_GAP_AFTER_A_LOOK = 3.0
_MAX_INTERVAL_S = 60.0
_SLOW_S = 1.0  # a look that takes longer is logged
_LOG_AGAIN_S = 600.0
# A new controller does not lengthen its regular interval for a slow slurmctld, which may have just
# started too: elements do not report many of the changes.
_NEW_S = 60.0
# Rate limit: anybody can send hints. They cause at most 20 early looks at once, then one every 3 s.
_HINTED_LOOKS = 20.0
_A_HINTED_LOOK_S = 3.0


def lead_s(ending_s: float) -> float:
    """Return how long before a pass trainers leave if elements take ``ending_s`` to end."""
    return min(_MAX_LEAD_S, max(LEAD_S, _UNTIL_IT_ENDS_S + ending_s))


@dataclass(frozen=True, slots=True)
class BackfillForecast:
    """When backfill passes are expected (Unix seconds), and for which jobs.

    ``left`` are jobs for which trainers do not leave. Either a pass left the job waiting although
    enough nodes were in holes, and nothing has changed for the job since; or the main scheduler may
    be about to start it.
    """

    due_s: float = -math.inf  # earliest start of the next pass; minus infinity: at any moment
    until_s: float = -math.inf  # the next pass starts before this if something has changed
    sure_s: float = -math.inf  # no pass starts before this
    asks: bool = False  # whether a job waits that the next pass may start
    left: frozenset[int] = frozenset()
    then_s: float = math.inf  # start of the pass after the next


class Schedule:
    """The times of the next looks, in seconds of the loop's clock.

    ``slowed_to_s`` is the interval between regular looks if slurmctld is slow, else None.
    """

    def __init__(self, settings: Settings, now_s: float) -> None:
        self._settings = settings
        self._began_s = now_s
        self._queue_due_s = now_s
        self._also_due_s = now_s
        self._last_look_s = float("-inf")
        self._backoff_s = _FIRST_BACKOFF_S
        self._not_before_s = float("-inf")  # the end of the backoff; hints do not shorten it
        self._ending_s = _FIRST_ENDING_S
        self._took_s = 0.0
        self.slowed_to_s: float | None = None
        self._regular_s = now_s  # when the next look is due without any hint
        self._hinted = _HINTED_LOOKS
        self._no_pass_until_s = self._slow_logged_s = float("-inf")
        self._lead_s = LEAD_S

    def due_s(self) -> float:
        """Return when the next look is due."""
        gap_s = max(_GAP_S, min(_MAX_BACKOFF_S, _GAP_AFTER_A_LOOK * self._took_s))
        return max(self._queue_due_s, self._last_look_s + gap_s, self._not_before_s)

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for a look."""
        return now_s >= self.due_s()

    def also_due(self, now_s: float) -> frozenset[str]:
        """Return what this look should read besides the queue: "nodes", "reservations"."""
        return _ALSO if now_s >= self._also_due_s else frozenset()

    def hint(self, kind: NoteKind, now_s: float, as_they_come: bool = False) -> None:
        """Look sooner because an element or a submission has sent a note.

        A submitted job waits for the look just before the next backfill pass, unless the main
        scheduler starts jobs ``as_they_come``.
        """
        delay_s = {NoteKind.LEAVING: _AFTER_LEAVING_S, NoteKind.GONE: _AFTER_GONE_S}.get(kind, 0.0)
        if kind is NoteKind.ANNOUNCED:
            until_s = now_s if as_they_come else self._no_pass_until_s - self._lead_s
            delay_s = max(0.0, until_s - now_s)
        if self._hinted < 1:
            delay_s = max(delay_s, _A_HINTED_LOOK_S)
        self._queue_due_s = min(self._queue_due_s, now_s + delay_s)

    def look_by(self, at_s: float) -> None:
        """Look again at ``at_s`` at the latest, because more has to be done."""
        self._queue_due_s = min(self._queue_due_s, at_s)

    def grew(self, elements: int, now_s: float) -> None:
        """Look again soon if many elements were released: more nodes may become idle soon."""
        if elements >= _MANY_JOINS:
            self.look_by(now_s + _AFTER_JOINS_S)

    def expect_pass(self, forecast: BackfillForecast, now_s: float, lead_s: float = LEAD_S) -> None:
        """Look early enough to empty nodes before the next backfill pass, and just after it.

        The pass after the next may come sooner than a regular look, so it is planned for too.
        """
        due_s, self._no_pass_until_s, self._lead_s = forecast.due_s, forecast.sure_s, lead_s
        around = (due_s + seconds for seconds in _AROUND_A_PASS_S)
        looks = (due_s - lead_s, *around, forecast.then_s - lead_s)
        any_moment_s = now_s + LEAD_S if now_s < forecast.until_s else math.inf
        next_s = min((at_s for at_s in looks if now_s < at_s < math.inf), default=any_moment_s)
        self._queue_due_s = min(self._queue_due_s, next_s)

    def looked(self, now_s: float, also: Set[str], ending: bool, took_s: float = 0.0) -> None:
        """Schedule the next look; if elements are ``ending``, after 1 s, then 2 s, 4 s and so on.

        ``also`` is what was read besides the queue; ``took_s`` is how long slurmctld took.
        """
        earned = max(0.0, now_s - self._last_look_s) / _A_HINTED_LOOK_S
        left = min(_HINTED_LOOKS, self._hinted + earned) - (now_s < self._regular_s)
        self._hinted = max(0.0, left)  # not below 0: some early looks had other reasons than hints
        self._last_look_s = now_s
        self._took_s = took_s
        is_new = 0 <= now_s - self._began_s < _NEW_S
        rest_s = 0.0 if is_new else min(_MAX_INTERVAL_S, _REST_AFTER_A_LOOK * took_s)
        interval_s = max(self._settings.queue_interval_s, rest_s)
        self.slowed_to_s = rest_s if rest_s > self._settings.queue_interval_s else None
        interval_s = min(interval_s, self._ending_s) if ending else interval_s
        self._ending_s = 2 * interval_s if ending else _FIRST_ENDING_S
        self._queue_due_s = self._regular_s = now_s + interval_s
        self._log_if_slow(now_s)
        if also >= _ALSO:
            self._also_due_s = now_s + _ALSO_AT * self._settings.queue_interval_s

    def _log_if_slow(self, now_s: float) -> None:
        logged_lately = now_s - self._slow_logged_s < _LOG_AGAIN_S
        if self.slowed_to_s is not None and self._took_s >= _SLOW_S and not logged_lately:
            self._slow_logged_s = now_s
            logger.warning(
                "slurmctld took %.1f s to answer, or limits our requests (rl_enable): it is asked "
                "every %.0f s for now",
                *(self._took_s, self.slowed_to_s),
            )

    def succeeded(self) -> None:
        """Reset the backoff: the turn has succeeded."""
        self._backoff_s, self._not_before_s = _FIRST_BACKOFF_S, float("-inf")

    def failed(self, now_s: float) -> None:
        """Look again after a backoff: slurmctld does not answer, or the turn has failed."""
        self._last_look_s = now_s
        self._queue_due_s = self._not_before_s = now_s + self._backoff_s
        self._backoff_s = min(_MAX_BACKOFF_S, 2 * self._backoff_s)
