"""How far each trainer says it has come: the last report, and samples/s over the last half minute.

Progress comes from users' jobs: it is shown, and decides nothing yet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bftrainer_slurm.keeper.protocol import NumberedNote

_WINDOW_S = 30.0


@dataclass(frozen=True, slots=True)
class Report:
    """A trainer's last report: samples in all, and what it measured beside."""

    time_s: float
    samples: float
    measures: dict[str, float]


class ProgressBook:
    """The reports of all trainers, by array id."""

    def __init__(self) -> None:
        self._recent: dict[int, deque[Report]] = {}

    def add(self, numbered: NumberedNote) -> Report:
        """Take a progress note; return it as a report."""
        measures = dict(numbered.note.measures)
        report = Report(numbered.time_s, measures.pop("samples"), measures)
        recent = self._recent.setdefault(numbered.note.array, deque())
        recent.append(report)
        while recent[0].time_s < report.time_s - _WINDOW_S:
            recent.popleft()
        return report

    def last(self, array: int) -> Report | None:
        """Return the trainer's last report."""
        recent = self._recent.get(array)
        return recent[-1] if recent else None

    def samples_per_s(self, array: int, now_s: float) -> float | None:
        """Return samples/s over the last 30 s up to now, or None where that is not known."""
        recent = [
            report for report in self._recent.get(array, ()) if report.time_s >= now_s - _WINDOW_S
        ]
        if len(recent) < 2 or recent[-1].time_s <= recent[0].time_s:
            return None
        gained = recent[-1].samples - recent[0].samples
        return max(0.0, gained) / (recent[-1].time_s - recent[0].time_s)

    def forget(self, keep: set[int]) -> None:
        """Drop trainers that are not among ``keep``."""
        for array in self._recent.keys() - keep:
            del self._recent[array]
