"""Small traces and trainers by hand, and where the real ones are."""

from __future__ import annotations

from pathlib import Path

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.replay.trace import Hole, Trace, trace_of
from bftrainer_slurm.replay.trainers import TrainerSpec

SUMMIT = Path(__file__).parents[3] / "shared" / "data" / "summit-2021-02"
NO_SUMMIT = f"no traces in {SUMMIT}"
T0 = 1_000_000.0
LINEAR = ThroughputCurve((0, 1, 8), (0.0, 10.0, 80.0))


def holes(*rows: tuple[str, float, float], end: float | None = None) -> Trace:
    """A trace of (node, begin, end), in seconds from its start."""
    return trace_of(
        [Hole(node, T0 + begin, T0 + stop) for node, begin, stop in rows],
        None if end is None else T0 + end,
    )


def trainer(
    name: str = "t",
    bounds: tuple[int, int] = (1, 8),
    costs: tuple[float, float] = (20.0, 10.0),
    total: float = 1e9,
    submit_s: float = 0.0,
    curve: ThroughputCurve = LINEAR,
) -> TrainerSpec:
    """A trainer that makes 10 samples/s on each node."""
    return TrainerSpec(name, submit_s, *bounds, *costs, total, curve)
