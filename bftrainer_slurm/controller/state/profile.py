"""What a plan is told of a trainer: its throughput curve and rescale costs; and who tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bftrainer_slurm.controller.observe.reports import Reform, Report, Runtime
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ThroughputCurve


@dataclass(frozen=True, slots=True)
class RescaleCosts:
    """Seconds without progress: after a trainer grew, after it shrank, of a start from no node."""

    up_s: float
    down_s: float
    start_s: float


# Until a trainer's own are measured. Measured with torch 2.13; DESIGN.md, "The elastic runtime".
PRIOR_COSTS = {
    Runtime.C10D: RescaleCosts(8.0, 7.0, start_s=8.0),
    Runtime.AGENT: RescaleCosts(0.3, 0.3, start_s=8.0),
    Runtime.WORKER: RescaleCosts(0.2, 0.2, start_s=8.0),
}


@dataclass(frozen=True, slots=True)
class Appraisal:
    """What a trainer is planned with.

    ``curve`` is in samples/s (or in any unit, where only its shape is known); ``done`` is the
    share of its samples that is done, None: unknown. ``expected`` is the curve without
    optimism where the trainer explores; None: there is none.
    """

    curve: ThroughputCurve
    costs: RescaleCosts
    done: float | None = None
    expected: ThroughputCurve | None = None


class Appraiser(Protocol):
    """Knows trainers; the daemon's learns from what they report."""

    def progressed(self, view: TrainerView, report: Report) -> None:
        """Hear how far a trainer has come."""

    def reformed(self, view: TrainerView, reform: Reform) -> None:
        """Hear that a trainer stands in a new generation."""

    def costs(self, view: TrainerView, now_s: float) -> RescaleCosts:
        """Return what a change of size costs this trainer, as far as is known now."""

    def appraise(self, views: Sequence[TrainerView], now_s: float) -> list[Appraisal]:
        """Return what each of the trainers is to be planned with, in their order."""

    def known(self, view: TrainerView, now_s: float) -> dict[str, Any]:
        """Return what users are shown of it."""

    def forget(self, keep: frozenset[int]) -> None:
        """Drop the trainers whose array is not among ``keep``."""
