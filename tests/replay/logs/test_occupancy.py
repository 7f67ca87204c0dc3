"""Holes are exactly where no job is, whatever the order of the log and the size of the buffer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs import occupancy as module
from bftrainer_slurm.replay.logs.occupancy import Occupancy

NODES = ("a", "b", "c")
END = 40
stretches = st.lists(
    st.tuples(
        st.sets(st.integers(0, 2), min_size=1),
        st.integers(-5, END + 5),
        st.one_of(st.integers(1, 20), st.just(math.inf)),
    ),
    max_size=12,
)


def holes(
    jobs: list[tuple[set[int], int, float]], min_hole_s: float = 0.0
) -> list[tuple[int, float, float]]:
    occupancy = Occupancy(min_hole_s)
    for nodes, start_s, length_s in jobs:
        occupancy.add(np.array(sorted(nodes), np.int32), start_s, start_s + length_s)
    found = occupancy.holes(NODES, 0.0, float(END))
    return list(zip(found.node.tolist(), found.start_s.tolist(), found.end_s.tolist(), strict=True))


def idle_seconds(jobs: list[tuple[set[int], int, float]]) -> set[tuple[int, int]]:
    return {
        (node, second)
        for node in range(3)
        for second in range(END)
        if not any(node in n and start <= second < start + length for n, start, length in jobs)
    }


@given(stretches)
def test_holes_are_where_no_job_is(jobs: list[tuple[set[int], int, float]]) -> None:
    found = holes(jobs)
    covered = [(n, s) for n, start, end in found for s in range(int(start), int(end))]
    assert len(covered) == len(set(covered))
    assert set(covered) == idle_seconds(jobs)


@given(stretches, st.integers(1, 10))
def test_a_shorter_hole_is_none(jobs: list[tuple[set[int], int, float]], least: int) -> None:
    assert holes(jobs, least) == [one for one in holes(jobs) if one[2] - one[1] >= least]


@given(stretches, st.integers(0, 6))
def test_merging_early_changes_nothing(jobs: list[tuple[set[int], int, float]], least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        late = holes(jobs, least)
        patch.setattr(module, "_MERGED_AT", 1)
        assert holes(jobs, least) == late


def test_a_node_without_any_job_is_idle_all_the_time() -> None:
    assert holes([({0, 2}, 0, math.inf)]) == [(1, 0.0, 40.0)]
