"""What a change of nodes loses: what was trained since the last start, or checkpoint. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer_slurm.controller.observe.reports import Report

OFTEN = 2  # the first time there may have been no checkpoint yet
MOST_S = 3600.0  # nobody keeps nodes for ever by what a change would lose


@dataclass(frozen=True, slots=True)
class Loss:
    """What a trainer's members say of its restarts.

    ``from_start`` is how often in a row it has begun at step 0 again after a change. It has trained
    for ``present_s`` since its last start, and for ``unsaved_s`` since its last checkpoint, 0 if
    the time is not known or a planned change loses nothing.
    """

    from_start: int = 0
    present_s: float = 0.0
    unsaved_s: float = 0.0

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
        return Loss(count, self.present_s + seconds, report.unsaved_s or 0.0)

    def restarted(self, seconds: float, report: Report) -> tuple[Loss, float]:
        """Return the loss after a new start, and how many seconds of before are trained again.

        ``seconds`` were trained before it since the last report. Steps that have numbers are told
        as trained again by themselves (``again_s``).
        """
        count = self.from_start  # if its first node has not trained before, and cannot tell
        if report.from_start is not None:
            count = max(count + 1, report.from_start) if report.from_start else 0
        after = Loss(count, 0.0, report.unsaved_s or 0.0)
        if report.again_s:
            return after, 0.0
        if report.from_start or after.begins_anew:
            return after, self.present_s + seconds
        return after, min(self.present_s, self.unsaved_s)


NO_LOSS = Loss()
