"""Where a trainer's time went: trained, waiting for nodes, rescaling, lost. Pure.

What it trained comes from its own reports; when it had nodes is in the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Self

from bftrainer_slurm.controller.observe.reports import Report
from bftrainer_slurm.controller.state.losses import NO_LOSS, Loss

WORK_COLUMNS = (
    "since_s, time_s, trained_s, rescaling_s, generation, again_s, from_start, present_s, unsaved_s"
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
class Served:
    """How long a trainer had at least one node, up to its last change.

    It has one since ``open_s``, None if it has none now. ``first_s`` and ``last_s`` are when the
    first stay began and the last one ended.
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


def served(stays: Iterable[tuple[float, float | None]]) -> Served:
    """Return when a trainer had nodes; ``stays`` are begins and ends (None: it is still there)."""
    in_order = sorted(stays, key=lambda stay: stay[0])
    if not in_order:
        return Served()
    seconds, first_s = 0.0, in_order[0][0]
    begin = end = first_s
    for start_s, end_s in in_order:
        if start_s > end:
            seconds, begin, end = seconds + end - begin, start_s, start_s
        end = math.inf if end_s is None else max(end, end_s)
    last_s = max((end_s for _, end_s in in_order if end_s is not None), default=None)
    if end == math.inf:
        return Served(seconds, begin, first_s, last_s)
    return Served(seconds + end - begin, None, first_s, last_s)


def goodput(
    work: Work | None, had: Served, submit_s: float, *, ended: bool, now_s: float
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
