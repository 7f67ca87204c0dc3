"""What trainers report: their progress, their present generation, and the sum of all reports. Pure.

Reports come from users' jobs, so impossible values are rejected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.keeper.protocol import LAUNCHERS, NumberedNote

_MOST = 1e15  # samples and steps; floats up to this hold whole numbers exactly
_MOST_TASKS = 10_000_000
_LONGEST_PAUSE_S = 3600.0
WINDOW_S = 30.0  # the reports that tell the present speed
OFTEN = 2  # a single restart from step 0 may be one before the first checkpoint
MOST_S = 3600.0  # a limit, so that nobody keeps nodes for ever by reporting a large loss


@dataclass(frozen=True, slots=True)
class Reform:
    """A trainer formed a new generation on ``nodes`` nodes at ``time_s``."""

    time_s: float
    generation: int
    nodes: int
    launcher: str = ""  # the program that started the training; empty if it is not known
    tasks: frozenset[int] = frozenset()  # of its elements


@dataclass(frozen=True, slots=True)
class Report:
    """A trainer's report of its progress. A value that was not reported is None.

    ``other_ranks`` is 1 if training resumed with another world size, and nothing of ours converts
    the counts of batches in its checkpoint.
    """

    time_s: float
    samples: float | None = None  # trained so far, as ``steps``
    steps: float | None = None
    nodes: int | None = None
    generation: int | None = None
    pause_s: float | None = None  # time without progress before this generation
    again_s: float | None = None  # the part of ``pause_s`` in which steps were trained again
    alone: float | None = None  # 1 if each process trains by itself
    from_start: int | None = None  # restarts in a row at step 0; 0 if training resumed
    unsaved_s: float | None = None  # training time since the last checkpoint
    other_ranks: float | None = None
    noise: float | None = None  # its gradient noise scale, in samples
    measures: Mapping[str, float] = field(default_factory=dict)  # the script's own measurements


NO_REPORT = Report(-math.inf)


def read_report(numbered: NumberedNote, max_nodes: int) -> Report | None:
    """Return a progress note as a report; None if any value in it is impossible."""
    measures = dict(numbered.note.measures)
    most = {"samples": _MOST, "steps": _MOST, "generation": _MOST, "nodes": max_nodes}
    most |= {"pause_s": _LONGEST_PAUSE_S, "again_s": _LONGEST_PAUSE_S, "alone": 1}
    most |= {"from_start": _MOST, "unsaved_s": _MOST, "other_ranks": 1}
    most |= {"noise": _MOST}
    known = {name: measures.pop(name, None) for name in most}
    if not all(value is None or 0 <= value <= most[name] for name, value in known.items()):
        return None  # NaN is in no range
    nodes, generation = known.pop("nodes"), known.pop("generation")
    from_start = known.pop("from_start")
    return Report(
        numbered.time_s,
        nodes=int(nodes) if nodes else None,
        generation=None if generation is None else int(generation),
        from_start=None if from_start is None else int(from_start),
        measures={name: value for name, value in measures.items() if math.isfinite(value)},
        **known,
    )


def read_reform(numbered: NumberedNote) -> Reform | None:
    """Return a note about a new generation; None if a value in it is impossible."""
    measures = dict(numbered.note.measures)
    generation, nodes = measures.get("generation", 0.0), measures.get("nodes", 0.0)
    if not (1 <= generation <= _MOST and 1 <= nodes <= _MOST):
        return None
    launcher = measures.get("launcher", 0.0)
    name = LAUNCHERS[int(launcher)] if 0 <= launcher < len(LAUNCHERS) else ""
    try:
        tasks = parse_tasks(numbered.note.tasks, _MOST_TASKS) if numbered.note.tasks else ()
    except ValueError:
        return None
    return Reform(numbered.time_s, int(generation), int(nodes), name, frozenset(tasks))


def read_script(numbered: NumberedNote) -> tuple[int, bool] | None:
    """Return which task runs the batch script, which starts all nodes, and whether it trains now.

    None if a value is impossible.
    """
    measures = dict(numbered.note.measures)
    leads, trains = measures.get("leads", -1.0), measures.get("trains", -1.0)
    possible = 0 <= leads <= _MOST and trains in (0.0, 1.0)
    return (int(leads), bool(trains)) if possible else None


def read_size(numbered: NumberedNote, max_nodes: int) -> int:
    """Return on how many nodes a script has failed; 0: not known, or an impossible number."""
    nodes = dict(numbered.note.measures).get("nodes", 0.0)
    return int(nodes) if 1 <= nodes <= max_nodes else 0


class Progress:
    """One trainer's reports of the last 30 s (``recent``), with its total samples and steps.

    After a change of nodes another element may report, and may count from zero. So this sums the
    gains from one report to the next. ``before`` is the total of samples that an earlier controller
    saved from the report at ``before_s``; None if unknown. The keeper may repeat reports: each
    counts once. ``refused`` is the number of impossible reports.
    """

    def __init__(self, before: float | None = None, before_s: float = -math.inf) -> None:
        self.refused = 0
        self.recent: deque[Report] = deque()
        self._before_s = before_s
        self._last_received = NO_REPORT  # with the reporter's own counts
        self._total = Report(-math.inf, samples=before)

    @property
    def samples(self) -> float | None:
        """All samples so far; None if unknown."""
        return self._total.samples

    @property
    def made(self) -> float:
        """All steps so far, or samples if only these are known."""
        return self._total.steps or self._total.samples or 0.0

    def add(self, report: Report) -> Report:
        """Add a report; return it with the total samples and steps."""
        last, total = self._last_received, self._total
        if report.time_s <= last.time_s:
            return total
        known = report.time_s <= self._before_s  # ``before`` already contains its samples
        total = replace(
            report,
            samples=total.samples if known else _sum(total.samples, last.samples, report.samples),
            steps=_sum(total.steps, last.steps, report.steps),
        )
        self._last_received, self._total = report, total
        self.recent.append(total)
        while self.recent[0].time_s < total.time_s - WINDOW_S:
            self.recent.popleft()
        return total


def _sum(total: float | None, before: float | None, now: float | None) -> float | None:
    """Return the total after one more report. A count that fell has restarted from zero."""
    if now is None or before is None:
        return total if now is None else max(now, total or 0.0)
    return (total or 0.0) + max(0.0, now - before)


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

    @property
    def shown(self) -> dict[str, Any]:
        """What users see of it."""
        return {
            "from_start": self.restarts_at_zero,
            "seconds": self.seconds,
            "other_ranks": bool(self.other_ranks),
        }

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


@dataclass(frozen=True, slots=True)
class Work:
    """The sum of a trainer's reports up to ``time_s`` (Unix seconds)."""

    since_s: float  # when the trainer was submitted (Unix seconds)
    time_s: float
    trained_s: float = 0.0  # without ``again_s``
    rescaling_s: float = 0.0
    generation: int | None = None  # of the last report
    nodes: int = 0  # on which it trained then
    again_s: float = 0.0  # training time that restarts have thrown away
    loss: Loss = NO_LOSS  # what the next restart would lose


def add_report(before: Work | None, report: Report, submit_s: float, there_s: float) -> Work:
    """Return the work with one more report; a repeated report changes nothing.

    The trainer has had a node without a break since ``there_s``. Before that it has not trained,
    even if the generation is the same: a new run numbers its generations from 1 again.
    """
    if before is None:
        loss = NO_LOSS.trained(0.0, report)
        since_s, about = min(submit_s, report.time_s), (report.generation, report.nodes or 0)
        return Work(since_s, report.time_s, 0.0, 0.0, *about, loss=loss)
    gap_s = report.time_s - before.time_s
    if gap_s <= 0:
        return before
    work = replace(
        before,
        since_s=min(before.since_s, submit_s),
        time_s=report.time_s,
        generation=report.generation,
        nodes=report.nodes or 0,
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
