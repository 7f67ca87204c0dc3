"""Idle time in cells of nodes and time adds up to what the holes are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs.holes import Columns, HoleTable, idle_seconds

holes_strategy = st.lists(
    st.tuples(st.integers(0, 3), st.floats(-10, 50), st.floats(0, 40)), max_size=10
)


@given(holes_strategy, st.sampled_from([0.5, 1.0, 3.0, 7.0]), st.integers(1, 12))
def test_each_cell_has_the_overlap_with_every_hole(
    holes: list[tuple[int, float, float]], width_s: float, count: int
) -> None:
    node = np.array([one[0] for one in holes], np.int32)
    start_s = np.array([one[1] for one in holes])
    end_s = np.array([one[1] + one[2] for one in holes])
    table = HoleTable(("a", "b", "c", "d"), node, start_s, end_s)
    row = np.array([0, 0, 1, 2])
    found = idle_seconds(table, Columns(2.0, width_s, count), row, 3)
    expected = np.zeros((3, count))
    for one, begin_s, finish_s in zip(node, start_s, end_s, strict=True):
        for column in range(count):
            left = 2.0 + column * width_s
            overlap = min(finish_s, left + width_s) - max(begin_s, left)
            expected[row[one], column] += max(0.0, overlap)
    np.testing.assert_allclose(found, expected, atol=1e-9)
