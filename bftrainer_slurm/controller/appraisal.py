"""What is known of a trainer before a plan: its throughput curve and its rescale costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from bftrainer_slurm.controller.view import TrainerView
from bftrainer_slurm.model import ThroughputCurve

# Until a trainer's own curve is learnt: Amdahl's law with 5 % that does not scale.
_SERIAL_SHARE = 0.05
# Measured with stock c10d, tuned; DESIGN.md, "The elastic runtime".
_RESCALE_UP_S = 8.0
_RESCALE_DOWN_S = 7.0


@dataclass(frozen=True, slots=True)
class Appraisal:
    """What a trainer is planned with.

    ``curve`` is in samples/s (or in any unit, where only its shape is known), the costs are
    seconds without progress: after it grew, after it shrank, and of a start from no node.
    ``done`` is the share of its samples that is done, None: unknown.
    """

    curve: ThroughputCurve
    rescale_up_s: float
    rescale_down_s: float
    start_s: float
    done: float | None = None


Appraise: TypeAlias = Callable[[TrainerView], Appraisal]


def prior(view: TrainerView) -> Appraisal:
    """Return what is assumed of a trainer that nobody has measured."""
    most = view.trainer.record.max_nodes
    counts = [0]
    while counts[-1] < most:
        counts.append(min(2 * counts[-1] or 1, most))
    speed_ups = [n / (1 + _SERIAL_SHARE * (n - 1)) if n else 0.0 for n in counts]
    curve = ThroughputCurve(tuple(counts), tuple(speed_ups))
    return Appraisal(curve, _RESCALE_UP_S, _RESCALE_DOWN_S, start_s=_RESCALE_UP_S)
