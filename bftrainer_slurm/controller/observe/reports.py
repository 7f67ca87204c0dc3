"""What trainers report: how far they have come, and which generation they are in.

Reports come from users' jobs, so impossible ones are refused.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from bftrainer_slurm.keeper.protocol import LAUNCHERS, NumberedNote

_MOST = 1e15  # samples and steps; below, whole numbers are exact
_LONGEST_PAUSE_S = 3600.0
_WINDOW_S = 30.0


class Runtime(Enum):
    """How a trainer follows its nodes; users see the values."""

    C10D = "c10d"  # torchrun's own rendezvous
    AGENT = "bftrainer"  # our rendezvous handler, script unchanged
    WORKER = "in-process"  # processes survive


@dataclass(frozen=True, slots=True)
class Reform:
    """A trainer has formed a generation on so many nodes at ``time_s``.

    ``launcher`` is what has started it, where that was said.
    """

    time_s: float
    runtime: Runtime
    generation: int
    nodes: int
    launcher: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script that runs in one task for all, and since when a training runs in it or not."""

    task: int
    trains: bool
    since_s: float


_RUNTIME_OF_MODE = {0.0: Runtime.AGENT, 1.0: Runtime.WORKER}


@dataclass(frozen=True, slots=True)
class Report:
    """A trainer's report: samples and steps so far, on how many nodes, in which generation.

    ``pause_s`` is how long training made no progress before that generation, None if not reported;
    in ``again_s`` of it steps were trained again. ``alone`` is 1 if each process trains by itself.
    ``from_start`` is how often in a row the script has begun at step 0 again, 0 if it went on;
    ``unsaved_s`` how long it has trained since its last checkpoint. ``other_ranks`` is 1 if it went
    on with another number of ranks, where nothing of ours translates its counts of batches.
    ``measures`` are the script's own measurements.
    """

    time_s: float
    samples: float | None = None
    steps: float | None = None
    nodes: int | None = None
    generation: int | None = None
    pause_s: float | None = None
    again_s: float | None = None
    alone: float | None = None
    from_start: int | None = None
    unsaved_s: float | None = None
    other_ranks: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)


NO_REPORT = Report(-math.inf)


def read_report(numbered: NumberedNote, max_nodes: int) -> Report | None:
    """Return a progress note as a report; None if something in it is impossible."""
    measures = dict(numbered.note.measures)
    most = {"samples": _MOST, "steps": _MOST, "generation": _MOST, "nodes": max_nodes}
    most |= {"pause_s": _LONGEST_PAUSE_S, "again_s": _LONGEST_PAUSE_S, "alone": 1}
    most |= {"from_start": _MOST, "unsaved_s": _MOST, "other_ranks": 1}
    known = {name: measures.pop(name, None) for name in most}
    if not all(value is None or 0 <= value <= most[name] for name, value in known.items()):
        return None  # nan is not in any range
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
    """Return a note on a new generation; None if it is impossible."""
    measures = dict(numbered.note.measures)
    runtime = _RUNTIME_OF_MODE.get(measures.get("mode", -1.0))
    generation, nodes = measures.get("generation", 0.0), measures.get("nodes", 0.0)
    if runtime is None or not (1 <= generation <= _MOST and 1 <= nodes <= _MOST):
        return None
    launcher = measures.get("launcher", 0.0)
    name = LAUNCHERS[int(launcher)] if 0 <= launcher < len(LAUNCHERS) else ""
    return Reform(numbered.time_s, runtime, int(generation), int(nodes), name)


def read_script(numbered: NumberedNote) -> Script | None:
    """Return a note on a batch script that runs once for all nodes; None if it is impossible."""
    measures = dict(numbered.note.measures)
    leads, trains = measures.get("leads", -1.0), measures.get("trains", -1.0)
    if not 0 <= leads <= _MOST or trains not in (0.0, 1.0):
        return None
    return Script(int(leads), bool(trains), numbered.time_s)


class Progress:
    """One trainer's reports of the last half minute, and their totals.

    After a change another element may report, with a count of its own: so the gains from one
    report to the next are summed. ``before`` is how many samples the trainer had by a report at
    ``before_s``, when the controller last ran; None if unknown. The keeper may repeat reports: each
    counts once. ``refused`` counts impossible reports.
    """

    def __init__(self, before: float | None = None, before_s: float = -math.inf) -> None:
        self.refused = 0
        self._before_s = before_s
        self._said = NO_REPORT  # the last one, as it came
        self._total = Report(-math.inf, samples=before)
        self._recent: deque[Report] = deque()

    @property
    def last(self) -> Report | None:
        """The last report."""
        return self._recent[-1] if self._recent else None

    def add(self, report: Report) -> Report:
        """Take a report; return it with the total samples and steps."""
        said, total = self._said, self._total
        if report.time_s <= said.time_s:
            return total
        known = report.time_s <= self._before_s  # its samples are in ``before``
        total = replace(
            report,
            samples=total.samples if known else _sum(total.samples, said.samples, report.samples),
            steps=_sum(total.steps, said.steps, report.steps),
        )
        self._said, self._total = report, total
        self._recent.append(total)
        while self._recent[0].time_s < total.time_s - _WINDOW_S:
            self._recent.popleft()
        return total

    def samples_per_s(self, now_s: float) -> float | None:
        """Return samples/s over the last 30 s up to now, or None if unknown."""
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
    """The total after another report; a count that fell has started again from zero."""
    if now is None or before is None:
        return total if now is None else max(now, total or 0.0)
    return (total or 0.0) + max(0.0, now - before)
