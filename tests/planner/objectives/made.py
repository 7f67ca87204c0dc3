"""Trainers for the tests of objectives: a curve by hand, and random ones."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives import Facts
from tests.planner.problems import curves

STEEP = ThroughputCurve((0, 1, 2, 4, 8), (0.0, 100.0, 200.0, 400.0, 800.0))
SIZES = (0, 1, 2, 4, 8, 16, 32, 64)


def amdahl(serial: float, unit: float = 1.0) -> ThroughputCurve:
    """A curve after Amdahl's law, ``unit`` samples/s on one node."""
    values = (unit * n / (1 + serial * (n - 1)) if n else 0.0 for n in SIZES)
    return ThroughputCurve(SIZES, tuple(values))


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    """Any trainer that the controller may know."""
    least = draw(st.integers(1, 6))
    return Facts(
        curve=draw(curves()),
        min_nodes=least,
        max_nodes=draw(st.integers(least, 40)),
        weight=draw(st.floats(1e-3, 1000)),
        user=draw(st.sampled_from("abc")),
        nodes=draw(st.integers(0, 40)),
        waited_s=draw(st.floats(0, 1e7)),
        done=draw(st.none() | st.floats(0, 1)),
        noise=draw(st.floats(0, 1e6) | st.just(math.inf)),
    )
