"""Reports of progress to the keeper, once a second, and what the job's log says of changes."""

from __future__ import annotations

import threading
import time

from bftrainer_slurm.elastic.changes import ChangeLog, Era
from bftrainer_slurm.elastic.memory import Memory, StepCounts
from bftrainer_slurm.keeper.membership import Membership

INTERVAL_S = 1.0
_LONGEST_PAUSE_S = 3600.0  # the controller refuses a report with a longer one


class Reporting:
    """A thread that reports an agent's memory while this node is the first of its generation."""

    def __init__(self, memory: Memory, membership: Membership, changes: ChangeLog) -> None:
        self._memory = memory
        self._changes = changes
        self._membership = membership
        self._lock = threading.Lock()  # what is read of a generation is told before the next one
        self._reports = False
        self._reported: StepCounts | None = None
        threading.Thread(target=self._run, name="bftrainer-progress", daemon=True).start()

    def begin(self) -> None:
        """Report the present generation from now on; no process trains at this moment."""
        self._memory.expect_first()
        self._reports = True

    def pause(self) -> None:
        """Send this generation's last report; no more until the next one begins."""
        self._tell()
        with self._lock:
            self._reports = False

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            era, now = self._changes.era, self._memory.read()
            if not self._reports or now.first_s == 0 or now == self._reported:
                return
            self._reported = now
            self._changes.trained(now)
        self._membership.progress(**measures(era, now))


def measures(era: Era, now: StepCounts) -> dict[str, float]:
    """Return the measures of a report; what is not known is left out."""
    found = {"steps": float(now.steps), "nodes": float(len(era.places))}
    found["generation"] = era.generation
    if now.samples is not None:
        found["samples"] = now.samples
    if now.alone:
        found["alone"] = 1.0
    elif now.from_start is not None:
        found["from_start"] = now.from_start
        begun_s = max(now.again_s or now.first_s, now.kept_s)
        if now.from_start == 0 and now.kept_s > 0:
            found["unsaved_s"] = max(0.0, now.last_s - begun_s)
    if era.before.last_s > 0 and now.first_s > 0:
        pause_s = max(0.0, now.first_s - era.before.last_s)
        found["pause_s"] = min(_LONGEST_PAUSE_S, pause_s)
        if now.again_s > 0:
            stood_s = now.again_s - era.before.last_s
            found["again_s"] = max(0.0, found["pause_s"] - stood_s)
    if now.other_ranks:
        found["other_ranks"] = 1.0  # the last: a report that is full goes without it
    return found
