"""Curves for trainers of unknown throughput, fitted to what they have done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves import Exploration, LatestFit, Measurement, Standing
from bftrainer_slurm.replay.progress import SimulatedTrainer


class Learning:
    """The curves of all active trainers, fitted again only after new measurements."""

    def __init__(self) -> None:
        self._fits = defaultdict[int, LatestFit](LatestFit)
        self._exploration = Exploration()

    def curves(
        self, trainers: Sequence[SimulatedTrainer], now_s: float
    ) -> dict[int, ThroughputCurve]:
        """Return the curve for each trainer's plan, by array."""
        standings = {
            one.array: Standing(
                self._fits[one.array].update(_measurements(one)),
                len(one.nodes),
                one.spec.max_nodes,
                _remaining_s(one),
            )
            for one in trainers
        }
        return self._exploration.curves(standings, now_s)

    @property
    def expected(self) -> dict[int, ThroughputCurve]:
        """The curves returned last, without the bonus of trainers that explore."""
        return self._exploration.expected


def _measurements(trainer: SimulatedTrainer) -> list[Measurement]:
    return [
        Measurement(nodes, samples / seconds, seconds)
        for nodes, (samples, seconds) in trainer.measured.items()
    ]


def _remaining_s(trainer: SimulatedTrainer) -> float | None:
    """Return how long a trainer will still run at its present rate, None if it stands still."""
    left = max(0.0, trainer.spec.total_samples - trainer.samples)
    return left / trainer.rate if trainer.rate else None
