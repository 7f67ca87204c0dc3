"""Where a trainer's time went: trained, waiting for nodes, rescaling, lost. Pure.

What it trained comes from its own reports; when it had nodes is in the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bftrainer_slurm.controller.observe.reports import Report


@dataclass(frozen=True, slots=True)
class Work:
    """The sum of a trainer's reports up to ``time_s``; it was submitted at ``since_s``.

    ``generation`` is the one that the last report is of.
    """

    since_s: float
    time_s: float
    trained_s: float = 0.0
    rescaling_s: float = 0.0
    generation: int | None = None


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
        return Work(min(submit_s, report.time_s), report.time_s, generation=report.generation)
    gap_s = report.time_s - before.time_s
    if gap_s <= 0:
        return before
    work = replace(
        before,
        since_s=min(before.since_s, submit_s),
        time_s=report.time_s,
        generation=report.generation,
    )
    if there_s > before.time_s:
        return work  # no node was there all the time in between
    if report.generation == before.generation:
        return replace(work, trained_s=work.trained_s + gap_s)
    if report.pause_s is None:
        return work  # no process lived through the change, or that is unknown
    pause_s = min(report.pause_s, gap_s)
    return replace(
        work,
        trained_s=work.trained_s + gap_s - pause_s,
        rescaling_s=work.rescaling_s + max(0.0, pause_s - (report.again_s or 0.0)),
    )


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
    without progress: while it starts, fails, hangs, or trains steps again. Values are None if it
    reports nothing.
    """
    since_s = min(known for known in (submit_s, had.first_s, work and work.since_s) if known)
    until_s = had.last_s if ended and had.open_s is None and had.last_s is not None else now_s
    open_s = 0.0 if had.open_s is None else max(0.0, until_s - had.open_s)
    with_nodes_s = had.seconds + open_s
    trained_s = rescaling_s = lost_s = None
    if work is not None:
        trained_s = min(work.trained_s, with_nodes_s)
        rescaling_s = min(work.rescaling_s, with_nodes_s - trained_s)
        lost_s = with_nodes_s - trained_s - rescaling_s
    return {
        "trained_s": trained_s,
        "waiting_s": max(0.0, until_s - since_s - with_nodes_s),
        "rescaling_s": rescaling_s,
        "lost_s": lost_s,
        "with_nodes_s": with_nodes_s,
    }
