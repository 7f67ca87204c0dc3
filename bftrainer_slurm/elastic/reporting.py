"""Reports of progress to the keeper, once a second, and what is said of changes in the job's log.

torchrun's agent reports what its memory says. A process that trains in process reports what it
counts by itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bftrainer_slurm.elastic import listeners
from bftrainer_slurm.elastic.changes import ChangeLog, Era
from bftrainer_slurm.elastic.memory import Memory, StepCounts
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Generation

if TYPE_CHECKING:
    from torch import Tensor

    from bftrainer_slurm.elastic.inprocess.sampler import Cursor

INTERVAL_S = 1.0
_LONGEST_PAUSE_S = 3600.0  # the controller refuses a report with a longer one


class Reporting:
    """A thread that reports an agent's memory while this node is the first of its generation."""

    def __init__(self, memory: Memory, membership: Membership, changes: ChangeLog) -> None:
        self._memory = memory
        self._changes = changes
        self._membership = membership
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
        self._reports = False

    def _run(self) -> None:
        while True:
            time.sleep(INTERVAL_S)
            self._tell()

    def _tell(self) -> None:
        era, now = self._changes.era, self._memory.read()
        if not self._reports or now.in_process or now.first_s == 0 or now == self._reported:
            return
        self._reported = now
        self._changes.trained(now)
        self._membership.progress(**measures(era, now))


class Progress:
    """What a training process counts and reports by itself, as it trains on at changes.

    ``cursor`` returns how far the training has come, which all ranks know; the rest is this
    process's. ``tell`` takes measures.
    """

    def __init__(self, cursor: Callable[[], Cursor], tell: Callable[..., object]) -> None:
        self.changes = ChangeLog(hear=listeners.tell)
        self._cursor = cursor
        self._tell = tell
        self._counts = StepCounts(0, 0, 0.0, 0.0, in_process=True, lost=0, lost_samples=0)
        self._begun = cursor()  # after the step begun last
        self._told_s = -math.inf

    def ended(self) -> None:
        """The generation has ended; the cursor is still that of its last step."""
        self.changes.ended(self._now())

    def began(self, generation: Generation, why: str, tells: bool) -> None:
        """A generation has begun; ``why`` ended the last one. ``tells``: see ``ChangeLog``."""
        self._counts = replace(self._counts, first_s=0.0)
        era = Era(generation.number, frozenset(generation.places), self._now())
        self.changes.began(era, why, tells)
        now = self._cursor()
        if self._begun.step > now.step:  # this rank has to train that again
            self._counts = replace(
                self._counts,
                lost=(self._counts.lost or 0) + self._begun.step - now.step,
                lost_samples=(self._counts.lost_samples or 0) + self._begun.samples - now.samples,
            )
        self._begun = now

    def begins(self, after: Cursor | None) -> None:
        """A step begins, with this cursor after it; None: it is a rehearsal."""
        self._begun = after or self._begun

    def stepped(self, tells: bool, loss: float | Tensor | None) -> None:
        """A step is committed; ``tells``: this is rank 0, which reports it once a second."""
        now_s = time.monotonic()
        self._counts = self._counts.stepped(now_s)
        if tells and now_s - self._told_s >= INTERVAL_S:
            self._told_s = now_s
            self.tell(loss)
            self.changes.trained(self._now())

    def tell(self, loss: float | Tensor | None) -> None:
        """Report the progress to the keeper, with the last step's loss, if it is known."""
        told = measures(self.changes.era, self._now())
        if loss is not None:
            told["loss"] = float(loss)  # a tensor is read only here
        self._tell(**told)

    def _now(self) -> StepCounts:
        cursor = self._cursor()
        return replace(self._counts, steps=cursor.step, samples=cursor.samples)


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
