"""Small traces and trainers by hand, and where the real ones are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.replay.logs.holes import HoleTable, holes_in, trace_of_holes
from bftrainer_slurm.replay.trace import Trace
from bftrainer_slurm.replay.trainers import TrainerSpec

SUMMIT = Path(__file__).parents[3] / "shared" / "data" / "summit-2021-02"
NO_SUMMIT = f"no traces in {SUMMIT}"
T0 = 1_000_000.0
LINEAR = ThroughputCurve((0, 1, 8), (0.0, 10.0, 80.0))


def holes(*rows: tuple[str, float, float], end: float | None = None) -> Trace:
    """A trace of (node, begin, end), in seconds from its start."""
    return trace_of_rows(
        *((node, T0 + begin, T0 + stop) for node, begin, stop in rows),
        end_s=None if end is None else T0 + end,
    )


def trace_of_rows(*rows: tuple[str, float, float], end_s: float | None = None) -> Trace:
    """A trace of (node, begin, end), Unix seconds; it ends with the last unless told otherwise."""
    nodes = tuple(sorted({node for node, _, _ in rows}))
    node = np.array([nodes.index(name) for name, _, _ in rows], np.int32)
    start_s = np.array([begin for _, begin, _ in rows], np.float64)
    stop_s = np.array([stop for _, _, stop in rows], np.float64)
    last_s = float(stop_s.max(initial=0.0)) if end_s is None else end_s
    first_s = float(start_s.min(initial=last_s))
    return trace_of_holes(HoleTable(nodes, node, start_s, stop_s), first_s, last_s)


def rows_of(trace: Trace) -> list[tuple[str, float, float]]:
    """The holes of a trace as (node, begin, end), by node."""
    table = holes_in(trace)
    columns = (table.node.tolist(), table.start_s.tolist(), table.end_s.tolist())
    return [(table.nodes[node], begin, end) for node, begin, end in zip(*columns, strict=True)]


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
