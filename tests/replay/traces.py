"""Small traces, holes and trainers by hand, and where the real ones are."""

from __future__ import annotations

from collections.abc import Iterable
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


def hole_table(rows: Iterable[tuple[int, float, float]], *nodes: str) -> HoleTable:
    """Holes of these nodes: the number of its node, begin and end of each."""
    node, start_s, end_s = np.array([*rows], float).reshape(-1, 3).T
    return HoleTable(nodes, node.astype(np.int32), start_s, end_s)


def holes(*rows: tuple[str, float, float], end: float | None = None) -> Trace:
    """A trace of (node, begin, end), in seconds from T0; it ends with the last unless told."""
    nodes = sorted({node for node, _, _ in rows})
    table = hole_table(((nodes.index(one), T0 + a, T0 + b) for one, a, b in rows), *nodes)
    last_s = float(table.end_s.max(initial=0.0)) if end is None else T0 + end
    return trace_of_holes(table, float(table.start_s.min(initial=last_s)), last_s)


def rows_of(found: Trace | HoleTable) -> list[tuple[str, float, float]]:
    """The holes as (node, begin, end), by name."""
    table = holes_in(found) if isinstance(found, Trace) else found
    columns = (table.node.tolist(), table.start_s.tolist(), table.end_s.tolist())
    return sorted((table.nodes[one], a, b) for one, a, b in zip(*columns, strict=True))


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
