"""Holes of nodes without names have the right number at any time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs import counts as module
from bftrainer_slurm.replay.logs.counts import Counts
from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import Job, JobTable

END = 30
jobs_strategy = st.lists(
    st.tuples(st.integers(-5, END + 5), st.integers(1, 15), st.integers(1, 4)),
    min_size=1,
    max_size=12,
)


def counted(jobs: list[tuple[int, int, int]]) -> Counts:
    rows = (
        Job(0, key, start_s, start_s + length_s, nodes=size, node_list="")
        for key, (start_s, length_s, size) in enumerate(jobs)
    )
    return Counts(JobTable.of(rows))


def idle_at(holes: HoleTable, second: int) -> int:
    return int(((holes.start_s <= second) & (second < holes.end_s)).sum())


@given(jobs_strategy, st.integers(1, 8))
def test_at_any_time_as_many_holes_are_open_as_nodes_are_idle(
    jobs: list[tuple[int, int, int]], nodes: int
) -> None:
    holes = counted(jobs).holes(nodes, 0.0, 0.0, float(END))
    for second in range(END):
        busy = sum(size for start, length, size in jobs if start <= second < start + length)
        assert idle_at(holes, second) == max(0, nodes - busy)


@given(jobs_strategy)
def test_no_node_has_two_holes_at_once(jobs: list[tuple[int, int, int]]) -> None:
    holes = counted(jobs).holes(5, 0.0, 0.0, float(END))
    same = holes.node[1:] == holes.node[:-1]
    assert (holes.end_s[:-1][same] < holes.start_s[1:][same]).all()


@given(jobs_strategy, st.integers(1, 8))
def test_looking_at_a_few_nodes_at_a_time_changes_nothing(
    jobs: list[tuple[int, int, int]], nodes: int
) -> None:
    whole = counted(jobs).holes(nodes, 2.0, 0.0, float(END))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NODES_AT_A_TIME", 2)
        parts = counted(jobs).holes(nodes, 2.0, 0.0, float(END))
    assert parts.node.tolist() == whole.node.tolist()
    assert parts.start_s.tolist() == whole.start_s.tolist()
    assert parts.end_s.tolist() == whole.end_s.tolist()


def test_the_node_freed_last_is_taken_first() -> None:
    holes = counted([(0, 10, 2), (0, 20, 1), (12, 30, 1)]).holes(3, 0.0, 0.0, 30.0)
    rows = zip(holes.node.tolist(), holes.start_s.tolist(), holes.end_s.tolist(), strict=True)
    assert list(rows) == [(0, 10.0, 30.0), (1, 10.0, 12.0), (1, 20.0, 30.0)]


def test_short_holes_are_left_out() -> None:
    counts = counted([(0, 10, 1), (15, 10, 1)])
    assert counts.holes(1, 6.0, 0.0, 25.0).node.tolist() == []
    assert counts.holes(1, 5.0, 0.0, 25.0).node.tolist() == [0]
