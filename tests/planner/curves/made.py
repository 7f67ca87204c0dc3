"""Measurements for the tests: of curves after the law, as they are or through noise."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from bftrainer_slurm.planner.curves import Measurement


def law(nodes: float, unit: float = 1000.0, serial: float = 0.02, pairs: float = 0.0) -> float:
    """Samples/s after the universal scalability law."""
    return unit * nodes / (1 + serial * (nodes - 1) + pairs * nodes * (nodes - 1))


def looks(sizes: Iterable[int], serial: float = 0.02, pairs: float = 0.0) -> list[Measurement]:
    """Five minutes on each size, three times, without noise."""
    return [Measurement(n, law(n, serial=serial, pairs=pairs), 300.0) for n in sizes] * 3


measurements = st.builds(
    Measurement,
    nodes=st.integers(1, 5000),
    samples_per_s=st.floats(1e-9, 1e12),
    seconds=st.floats(1e-3, 1e7),
)
