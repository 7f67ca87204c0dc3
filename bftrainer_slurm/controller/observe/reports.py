"""Parses what trainers report: their progress, and their present generation.

Reports come from users' jobs, so impossible values are rejected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from bftrainer_slurm.keeper.protocol import LAUNCHERS, NumberedNote

_MOST = 1e15  # samples and steps; floats up to this hold whole numbers exactly
_LONGEST_PAUSE_S = 3600.0
_WINDOW_S = 30.0


class Runtime(Enum):
    """How a trainer adapts to a change of nodes; users see the values."""

    C10D = "c10d"  # torchrun's own rendezvous
    AGENT = "bftrainer"  # our rendezvous handler; the script is unchanged
    WORKER = "in-process"  # the processes survive the change


@dataclass(frozen=True, slots=True)
class Reform:
    """A trainer formed a new generation on ``nodes`` nodes at ``time_s``."""

    time_s: float
    runtime: Runtime
    generation: int
    nodes: int
    launcher: str = ""  # the program that started the training; empty if it is not known


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script that runs in one element and starts the training on all nodes."""

    task: int  # of the element
    trains: bool  # whether a training runs in the script now
    since_s: float  # when ``trains`` last changed


_RUNTIME_OF_MODE = {0.0: Runtime.AGENT, 1.0: Runtime.WORKER}


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
    measures: Mapping[str, float] = field(default_factory=dict)  # the script's own measurements


NO_REPORT = Report(-math.inf)


def read_report(numbered: NumberedNote, max_nodes: int) -> Report | None:
    """Return a progress note as a report; None if any value in it is impossible."""
    measures = dict(numbered.note.measures)
    most = {"samples": _MOST, "steps": _MOST, "generation": _MOST, "nodes": max_nodes}
    most |= {"pause_s": _LONGEST_PAUSE_S, "again_s": _LONGEST_PAUSE_S, "alone": 1}
    most |= {"from_start": _MOST, "unsaved_s": _MOST, "other_ranks": 1}
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
    runtime = _RUNTIME_OF_MODE.get(measures.get("mode", -1.0))
    generation, nodes = measures.get("generation", 0.0), measures.get("nodes", 0.0)
    if runtime is None or not (1 <= generation <= _MOST and 1 <= nodes <= _MOST):
        return None
    launcher = measures.get("launcher", 0.0)
    name = LAUNCHERS[int(launcher)] if 0 <= launcher < len(LAUNCHERS) else ""
    return Reform(numbered.time_s, runtime, int(generation), int(nodes), name)


def read_script(numbered: NumberedNote) -> Script | None:
    """Return a note about a batch script that starts all nodes; None if a value is impossible."""
    measures = dict(numbered.note.measures)
    leads, trains = measures.get("leads", -1.0), measures.get("trains", -1.0)
    if not 0 <= leads <= _MOST or trains not in (0.0, 1.0):
        return None
    return Script(int(leads), bool(trains), numbered.time_s)


class Progress:
    """One trainer's reports of the last 30 s, and its total samples and steps.

    After a change of nodes another element may report, and may count from zero. So this sums the
    gains from one report to the next. ``before`` is the total of samples that an earlier controller
    saved from the report at ``before_s``; None if unknown. The keeper may repeat reports: each
    counts once. ``refused`` is the number of impossible reports.
    """

    def __init__(self, before: float | None = None, before_s: float = -math.inf) -> None:
        self.refused = 0
        self._before_s = before_s
        self._last_received = NO_REPORT  # with the reporter's own counts
        self._total = Report(-math.inf, samples=before)
        self._recent: deque[Report] = deque()

    @property
    def last(self) -> Report | None:
        """The last report, with total samples and steps."""
        return self._recent[-1] if self._recent else None

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
        self._recent.append(total)
        while self._recent[0].time_s < total.time_s - _WINDOW_S:
            self._recent.popleft()
        return total

    def samples_per_s(self, now_s: float) -> float | None:
        """Return the mean samples/s of the last 30 s, or None if unknown."""
        recent = [
            (report.time_s, report.samples)
            for report in self._recent
            if report.samples is not None and report.time_s >= now_s - _WINDOW_S
        ]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return None
        (first_s, before), (last_s, after) = recent[0], recent[-1]
        return max(0.0, after - before) / (last_s - first_s)


def _sum(total: float | None, before: float | None, now: float | None) -> float | None:
    """Return the total after one more report. A count that fell has restarted from zero."""
    if now is None or before is None:
        return total if now is None else max(now, total or 0.0)
    return (total or 0.0) + max(0.0, now - before)
