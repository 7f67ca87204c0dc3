"""Trainers whose throughput nobody has told: planned with curves fitted to what they have done."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves import Fit, Measurement, Standing, fit, planning_curves
from bftrainer_slurm.replay.progress import SimulatedTrainer

_FIRST_S = 30.0  # as long as a trainer must have trained on a number of nodes to be believed
_WORTH_A_FIT = 1.5  # a size is fitted again when its time has grown by this factor


class Learning:
    """Curves of all trainers at work, fitted again only where there is news."""

    def __init__(self) -> None:
        self._fits: dict[int, Fit] = {}
        self._used_s: dict[int, dict[int, float]] = {}  # seconds by number of nodes, by array

    def curves(self, trainers: Sequence[SimulatedTrainer]) -> dict[int, ThroughputCurve]:
        """Return the curve to plan each one with, by array."""
        for trainer in trainers:
            if self._has_news(trainer):
                self._fit(trainer)
        standings = [
            Standing(
                self._fits[one.array],
                len(one.nodes),
                one.spec.max_nodes,
                _remaining_s(one),
            )
            for one in trainers
        ]
        found = planning_curves(standings)
        return {one.array: curve for one, curve in zip(trainers, found, strict=True)}

    def _has_news(self, trainer: SimulatedTrainer) -> bool:
        used_s = self._used_s.get(trainer.array)
        if used_s is None:
            return True
        return any(
            seconds >= max(_FIRST_S, _WORTH_A_FIT * used_s.get(nodes, 0.0))
            for nodes, (_, seconds) in trainer.measured.items()
        )

    def _fit(self, trainer: SimulatedTrainer) -> None:
        measured = {
            nodes: (samples, seconds)
            for nodes, (samples, seconds) in trainer.measured.items()
            if seconds >= _FIRST_S
        }
        self._used_s[trainer.array] = {nodes: seconds for nodes, (_, seconds) in measured.items()}
        self._fits[trainer.array] = fit(
            [
                Measurement(nodes, samples / seconds, seconds)
                for nodes, (samples, seconds) in measured.items()
            ]
        )


def _remaining_s(trainer: SimulatedTrainer) -> float | None:
    """How long it will still run at its present pace, None where it stands still."""
    left = max(0.0, trainer.spec.total_samples - trainer.samples)
    return left / trainer.rate if trainer.rate else None
