"""Adds up a trainer's reports and allocations: its progress, and how its time was spent. Pure.

Training times come from the trainer's own reports; allocations come from the history.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Self, TypeAlias

from bftrainer_slurm.controller.observe.reports import Report

OFTEN = 2  # a single restart from step 0 may be one before the first checkpoint
MOST_S = 3600.0  # a limit, so that nobody keeps nodes for ever by reporting a large loss


@dataclass(frozen=True, slots=True)
class Loss:
    """What a trainer would lose by a restart, according to its members' reports."""

    from_start: int = 0  # restarts in a row that began at step 0
    present_s: float = 0.0  # training time since the last start
    unsaved_s: float = 0.0  # since the last checkpoint; 0: unknown, or planned changes lose nothing
    other_ranks: bool = False  # see ``Report.other_ranks``; true if this ever happened

    @property
    def restarts_at_zero(self) -> bool:
        """Whether each restart seems to begin at step 0."""
        return self.from_start >= OFTEN

    @property
    def seconds(self) -> float:
        """The seconds of training that a restart now would lose."""
        lost_s = self.present_s if self.restarts_at_zero else min(self.present_s, self.unsaved_s)
        return min(lost_s, MOST_S)

    def trained(self, seconds: float, report: Report) -> Loss:
        """Return the loss after ``seconds`` more of training without a restart."""
        count = self.from_start if report.from_start is None else report.from_start
        count = max(count, self.from_start) if count else 0
        return self._after(report, count, self.present_s + seconds)

    def restarted(self, seconds: float, report: Report) -> tuple[Loss, float]:
        """Return the loss after a restart, and how many seconds of training must be repeated.

        ``seconds`` is the training time between the last report and the restart. If the report
        already says how long steps were trained again (``again_s``), nothing is added here.
        """
        count = self.from_start  # stays if the first node is new and cannot know the step
        if report.from_start is not None:
            count = max(count + 1, report.from_start) if report.from_start else 0
        after = self._after(report, count, 0.0)
        if report.again_s:
            return after, 0.0
        if report.from_start or after.restarts_at_zero:
            return after, self.present_s + seconds
        return after, min(self.present_s, self.unsaved_s)

    def _after(self, report: Report, from_start: int, present_s: float) -> Loss:
        other_ranks = self.other_ranks or bool(report.other_ranks)
        return Loss(from_start, present_s, report.unsaved_s or 0.0, other_ranks)


NO_LOSS = Loss()


WORK_COLUMNS = (
    "since_s, time_s, trained_s, rescaling_s, generation, again_s, "
    "from_start, present_s, unsaved_s, other_ranks"
)
_OWN = 6  # the number of columns before those of ``loss``


@dataclass(frozen=True, slots=True)
class Work:
    """The sum of a trainer's reports up to ``time_s`` (Unix seconds)."""

    since_s: float  # when the trainer was submitted (Unix seconds)
    time_s: float
    trained_s: float = 0.0  # without ``again_s``
    rescaling_s: float = 0.0
    generation: int | None = None  # of the last report
    again_s: float = 0.0  # training time that restarts have thrown away
    loss: Loss = NO_LOSS  # what the next restart would lose

    @property
    def row(self) -> tuple[Any, ...]:
        """The values of ``WORK_COLUMNS``."""
        *own, loss = astuple(self)
        return (*own, *loss)

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """Build a ``Work`` from the values of ``WORK_COLUMNS``."""
        return replace(cls(*row[:_OWN]), loss=Loss(*row[_OWN:]))


@dataclass(frozen=True, slots=True)
class NodeTime:
    """The times in which a trainer had at least one node. Times are Unix seconds."""

    seconds: float = 0.0  # the sum of all such times that have ended
    open_s: float | None = None  # when the present such time began; None: no node now
    first_s: float | None = None  # begin of the first allocation
    last_s: float | None = None  # end of the last allocation


def add_report(before: Work | None, report: Report, submit_s: float, there_s: float) -> Work:
    """Return the work with one more report; a repeated report changes nothing.

    The trainer has had a node without a break since ``there_s``. Before that it has not trained,
    even if the generation is the same: a new run numbers its generations from 1 again.
    """
    if before is None:
        loss = NO_LOSS.trained(0.0, report)
        return Work(
            min(submit_s, report.time_s), report.time_s, generation=report.generation, loss=loss
        )
    gap_s = report.time_s - before.time_s
    if gap_s <= 0:
        return before
    work = replace(
        before,
        since_s=min(before.since_s, submit_s),
        time_s=report.time_s,
        generation=report.generation,
    )
    stayed = there_s <= before.time_s  # the trainer had a node all the time between the reports
    if stayed and report.generation == before.generation:
        loss = before.loss.trained(gap_s, report)
        return replace(work, trained_s=work.trained_s + gap_s, loss=loss)
    # ``pause_s`` is None if no process survived the change, or if that is unknown.
    pause_s = gap_s if not stayed or report.pause_s is None else min(report.pause_s, gap_s)
    loss, thrown_s = before.loss.restarted(gap_s - pause_s, report)
    thrown_s = min(thrown_s, work.trained_s)
    again_s = 0.0 if not stayed or report.pause_s is None else min(report.again_s or 0.0, pause_s)
    work = replace(
        work,
        trained_s=work.trained_s + gap_s - pause_s - thrown_s,
        again_s=work.again_s + thrown_s + again_s,
        loss=loss,
    )
    if not stayed or report.pause_s is None:
        return work
    return replace(work, rescaling_s=work.rescaling_s + pause_s - again_s)


def node_time(allocations: Iterable[tuple[float, float | None]]) -> NodeTime:
    """Return when a trainer had nodes; ``allocations`` are starts and ends (None: still open)."""
    in_order = sorted(allocations, key=lambda one: one[0])
    if not in_order:
        return NodeTime()
    seconds, first_s = 0.0, in_order[0][0]
    begin = end = first_s
    for start_s, end_s in in_order:
        if start_s > end:
            seconds, begin, end = seconds + end - begin, start_s, start_s
        end = math.inf if end_s is None else max(end, end_s)
    last_s = max((end_s for _, end_s in in_order if end_s is not None), default=None)
    if end == math.inf:
        return NodeTime(seconds, begin, first_s, last_s)
    return NodeTime(seconds + end - begin, None, first_s, last_s)


def goodput(
    work: Work | None, times: NodeTime, submit_s: float, *, ended: bool, now_s: float
) -> dict[str, float | None]:
    """Return how a trainer's time since its submission was spent, in seconds.

    The time ends now, or with the last allocation of a trainer that has ended. ``lost_s`` is time
    with nodes but without progress: the trainer starts, fails, hangs, or trains steps again (this
    part is ``again_s``). Values that depend on reports are None if there are none.
    """
    since_s = min(known for known in (submit_s, times.first_s, work and work.since_s) if known)
    until_s = times.last_s if ended and times.open_s is None and times.last_s is not None else now_s
    open_s = 0.0 if times.open_s is None else max(0.0, until_s - times.open_s)
    with_nodes_s = times.seconds + open_s
    trained_s = rescaling_s = lost_s = again_s = None
    if work is not None:
        trained_s = min(work.trained_s, with_nodes_s)
        rescaling_s = min(work.rescaling_s, with_nodes_s - trained_s)
        lost_s = with_nodes_s - trained_s - rescaling_s
        again_s = min(work.again_s, lost_s)
    return {
        "trained_s": trained_s,
        "waiting_s": max(0.0, until_s - since_s - with_nodes_s),
        "rescaling_s": rescaling_s,
        "lost_s": lost_s,
        "again_s": again_s,
        "with_nodes_s": with_nodes_s,
    }


Row: TypeAlias = tuple[int, float, float | None, str | None]  # task, start_s, end_s, how


@dataclass(frozen=True, slots=True)
class Tally:
    """A summary of one trainer's allocations so far."""

    grew: int = 0
    shrank: int = 0
    reclaimed: int = 0
    node_s: float = 0.0  # of finished allocations only
    times: NodeTime = field(default_factory=NodeTime)  # when the trainer had nodes


class Allocations:
    """One trainer's allocations; ``tally`` is their summary.

    The summary is updated with each allocation: a trainer may have had a million of them, so no
    turn may read them all again.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        known = list(rows)
        ways = Counter(how for *_, how in known)
        node_s = sum(end_s - start_s for _, start_s, end_s, _ in known if end_s is not None)
        times = node_time((start_s, end_s) for _, start_s, end_s, _ in known)
        self.tally = Tally(len(known), ways["shrank"], ways["reclaimed"], node_s, times)
        self._open_s = {task: start_s for task, start_s, end_s, _ in known if end_s is None}
        self._last_begin_s = max((start_s for _, start_s, *_ in known), default=-math.inf)

    def begin(self, task: int, start_s: float) -> bool:
        """Add an allocation; return False if it begins before others are over."""
        tally, times = self.tally, self.tally.times
        if task in self._open_s or start_s < (times.open_s or 0.0):
            return False
        if times.open_s is None and start_s <= (times.last_s or 0.0):  # there may have been no gap
            return False
        self._open_s[task] = start_s
        self._last_begin_s = max(self._last_begin_s, start_s)
        if times.open_s is None:
            first_s = start_s if times.first_s is None else times.first_s
            times = replace(times, open_s=start_s, first_s=first_s)
        self.tally = replace(tally, grew=tally.grew + 1, times=times)
        return True

    def end(self, task: int, end_s: float, how: str) -> bool:
        """End an allocation; return whether the summary could be updated.

        It could not if the allocation has not begun, or if another one began after ``end_s``: there
        may be a gap between them.
        """
        start_s, tally, times = self._open_s.pop(task, None), self.tally, self.tally.times
        if start_s is None or times.open_s is None:
            return False
        end_s = max(start_s, end_s)
        if end_s < self._last_begin_s:
            return False
        last_s = end_s if times.last_s is None else max(times.last_s, end_s)
        times = replace(times, last_s=last_s)
        if not self._open_s and times.open_s is not None:
            times = replace(times, seconds=times.seconds + last_s - times.open_s, open_s=None)
        self.tally = replace(
            tally,
            shrank=tally.shrank + (how == "shrank"),
            reclaimed=tally.reclaimed + (how == "reclaimed"),
            node_s=tally.node_s + end_s - start_s,
            times=times,
        )
        return True
