"""The sums of a trainer's reports and allocations: how far it is, and where its time went. Pure.

What it trained comes from its own reports; when it had nodes is in the history.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Self, TypeAlias

from bftrainer_slurm.controller.observe.reports import Report

OFTEN = 2  # the first time there may have been no checkpoint yet
MOST_S = 3600.0  # nobody keeps nodes for ever by what a change would lose


@dataclass(frozen=True, slots=True)
class Loss:
    """What a trainer's members say of its restarts.

    ``from_start`` is how often in a row it has begun at step 0 again after a change. It has trained
    for ``present_s`` since its last start, and for ``unsaved_s`` since its last checkpoint, 0 if
    the time is not known or a planned change loses nothing. ``other_ranks``: once it went on with
    another number of ranks, and counts of batches in its checkpoint meant other samples.
    """

    from_start: int = 0
    present_s: float = 0.0
    unsaved_s: float = 0.0
    other_ranks: bool = False

    @property
    def begins_anew(self) -> bool:
        """Whether each change takes it back to step 0, as far as was seen."""
        return self.from_start >= OFTEN

    @property
    def seconds(self) -> float:
        """The seconds of training that a change now would lose."""
        lost_s = self.present_s if self.begins_anew else min(self.present_s, self.unsaved_s)
        return min(lost_s, MOST_S)

    def trained(self, seconds: float, report: Report) -> Loss:
        """Return the loss after more training without a change."""
        count = self.from_start if report.from_start is None else report.from_start
        count = max(count, self.from_start) if count else 0
        return self._after(report, count, self.present_s + seconds)

    def restarted(self, seconds: float, report: Report) -> tuple[Loss, float]:
        """Return the loss after a new start, and how many seconds of before are trained again.

        ``seconds`` were trained before it since the last report. Steps that have numbers are told
        as trained again by themselves (``again_s``).
        """
        count = self.from_start  # if its first node has not trained before, and cannot tell
        if report.from_start is not None:
            count = max(count + 1, report.from_start) if report.from_start else 0
        after = self._after(report, count, 0.0)
        if report.again_s:
            return after, 0.0
        if report.from_start or after.begins_anew:
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
_OWN = 6  # columns that are not of its loss


@dataclass(frozen=True, slots=True)
class Work:
    """The sum of a trainer's reports up to ``time_s``; it was submitted at ``since_s``.

    ``generation`` is the one that the last report is of. What was trained in ``again_s`` was thrown
    away by a restart: it is not in ``trained_s``. ``loss`` is what the next one would lose.
    """

    since_s: float
    time_s: float
    trained_s: float = 0.0
    rescaling_s: float = 0.0
    generation: int | None = None
    again_s: float = 0.0
    loss: Loss = NO_LOSS

    @property
    def row(self) -> tuple[Any, ...]:
        """The values of ``WORK_COLUMNS``."""
        *own, loss = astuple(self)
        return (*own, *loss)

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """Return the work that these values say."""
        return replace(cls(*row[:_OWN]), loss=Loss(*row[_OWN:]))


@dataclass(frozen=True, slots=True)
class NodeTime:
    """How long a trainer had at least one node, up to its last change.

    It has one since ``open_s``, None if it has none now. ``first_s`` and ``last_s`` are when the
    first allocation began and the last one ended.
    """

    seconds: float = 0.0
    open_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None


def worked(before: Work | None, report: Report, submit_s: float, there_s: float) -> Work:
    """Return the work with a further report; a repeated report changes nothing.

    Since ``there_s`` the trainer has had a node all the time. Before that it has not trained, even
    if the generation seems to be the same: a new run numbers its generations from 1 again.
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
    stayed = there_s <= before.time_s  # a node was there all the time in between
    if stayed and report.generation == before.generation:
        loss = before.loss.trained(gap_s, report)
        return replace(work, trained_s=work.trained_s + gap_s, loss=loss)
    # None: no process lived through the change, or that is unknown.
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
    """Return when a trainer had nodes; ``allocations`` are begins and ends (None: it goes on)."""
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
    work: Work | None, had: NodeTime, submit_s: float, *, ended: bool, now_s: float
) -> dict[str, float | None]:
    """Return how the time since a trainer was submitted was spent, in seconds.

    The time ends now, or when an ended trainer's last node left. ``lost_s`` is time with nodes but
    without progress: while it starts, fails, hangs, or trains steps again, which is the part
    ``again_s``. Values are None if it reports nothing.
    """
    since_s = min(known for known in (submit_s, had.first_s, work and work.since_s) if known)
    until_s = had.last_s if ended and had.open_s is None and had.last_s is not None else now_s
    open_s = 0.0 if had.open_s is None else max(0.0, until_s - had.open_s)
    with_nodes_s = had.seconds + open_s
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
    """A summary of one trainer so far. ``node_s`` counts finished allocations only.

    ``had`` says when it had nodes.
    """

    grew: int = 0
    shrank: int = 0
    reclaimed: int = 0
    node_s: float = 0.0
    had: NodeTime = field(default_factory=NodeTime)


class Allocations:
    """One trainer's allocations; ``tally`` is of all of them.

    They are summed up as they come: a trainer may have had a million, and no turn reads them again.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        known = list(rows)
        ways = Counter(how for *_, how in known)
        node_s = sum(end_s - start_s for _, start_s, end_s, _ in known if end_s is not None)
        had = node_time((start_s, end_s) for _, start_s, end_s, _ in known)
        self.tally = Tally(len(known), ways["shrank"], ways["reclaimed"], node_s, had)
        self._open_s = {task: start_s for task, start_s, end_s, _ in known if end_s is None}
        self._last_begin_s = max((start_s for _, start_s, *_ in known), default=-math.inf)

    def begin(self, task: int, start_s: float) -> bool:
        """Add an allocation; return False if it begins before others are over."""
        tally, had = self.tally, self.tally.had
        if task in self._open_s or start_s < (had.open_s or 0.0):
            return False
        if had.open_s is None and start_s <= (had.last_s or 0.0):  # perhaps without a gap
            return False
        self._open_s[task] = start_s
        self._last_begin_s = max(self._last_begin_s, start_s)
        if had.open_s is None:
            first_s = start_s if had.first_s is None else had.first_s
            had = replace(had, open_s=start_s, first_s=first_s)
        self.tally = replace(tally, grew=tally.grew + 1, had=had)
        return True

    def end(self, task: int, end_s: float, how: str) -> bool:
        """End an allocation; return whether it could be.

        It could not if it has not begun, or ended before another.

        Another one that began after this end may have begun after a gap.
        """
        start_s, tally, had = self._open_s.pop(task, None), self.tally, self.tally.had
        if start_s is None or had.open_s is None:
            return False
        end_s = max(start_s, end_s)
        if end_s < self._last_begin_s:
            return False
        last_s = end_s if had.last_s is None else max(had.last_s, end_s)
        had = replace(had, last_s=last_s)
        if not self._open_s and had.open_s is not None:
            had = replace(had, seconds=had.seconds + last_s - had.open_s, open_s=None)
        self.tally = replace(
            tally,
            shrank=tally.shrank + (how == "shrank"),
            reclaimed=tally.reclaimed + (how == "reclaimed"),
            node_s=tally.node_s + end_s - start_s,
            had=had,
        )
        return True
