"""Holes are where no job is, whatever says so: jobs on named nodes, numbers of nodes, events."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs import counts, occupancy
from bftrainer_slurm.replay.logs.counts import Counts
from bftrainer_slurm.replay.logs.holes import (
    Columns,
    HoleTable,
    between,
    holes_in,
    idle_seconds,
    longer,
    trace_of_holes,
)
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.trace import Trace
from tests.replay.traces import hole_table, rows_of

END = 40
Stretch = tuple[set[int], int, float]  # of a job: its nodes, its start and its length
Sized = tuple[int, int, int]  # of a job on any nodes: its start, its length and its size


@st.composite
def tables(draw: st.DrawFn) -> HoleTable:
    rows = []
    for node in range(3):
        times = sorted(draw(st.sets(st.integers(0, 50), max_size=8)))
        rows += [(node, a, b) for a, b in zip(times[::2], times[1::2], strict=False)]
    return hole_table(rows, "a", "b", "c")


def as_replayed(trace: Trace) -> Iterator[tuple[str, float, float]]:
    """The holes of a trace, event by event."""
    since: dict[int, float] = {}
    events = zip(trace.time_s.tolist(), trace.node.tolist(), trace.idle.tolist(), strict=True)
    for time_s, node, idle in events:
        if idle:
            since.setdefault(node, time_s)
        elif node in since:
            yield trace.nodes[node], since.pop(node), time_s
    for node, start_s in since.items():
        yield trace.nodes[node], start_s, trace.end_s


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1), st.booleans()), max_size=12))
def test_repeated_events_are_read_as_the_replay_reads_them(
    events: list[tuple[int, int, bool]],
) -> None:
    events = sorted(events, key=lambda event: event[0])
    time_s, node, idle = zip(*events, strict=True) if events else ((), (), ())
    columns = np.array(time_s, float), np.array(node, np.int32), np.array(idle, bool)
    trace = Trace(("a", "b"), *columns, 0.0, 20.0)
    assert rows_of(trace) == rows_of(holes_in(trace)) == sorted(as_replayed(trace))


@given(tables(), st.integers(0, 25), st.integers(26, 50))
def test_what_is_cut_keeps_the_time_between_and_is_the_same_as_events(
    holes: HoleTable, first: int, last: int
) -> None:
    cut = between(holes, first, last)
    assert (cut.start_s >= first).all()
    assert (cut.end_s <= last).all()
    inside = np.minimum(holes.end_s, last) - np.maximum(holes.start_s, first)
    assert cut.length_s.sum() == np.maximum(inside, 0).sum()
    assert rows_of(trace_of_holes(cut, first, last)) == rows_of(cut)


@given(tables(), st.integers(0, 20))
def test_longer_keeps_the_longer_ones(holes: HoleTable, least: int) -> None:
    kept = [row for row in rows_of(holes) if row[2] - row[1] >= least]
    assert rows_of(longer(holes, least)) == kept


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 50), st.floats(0, 40)), max_size=10),
    st.sampled_from([0.5, 1.0, 3.0, 7.0]),
    st.integers(1, 12),
)
def test_idle_time_in_a_cell_of_nodes_and_time_is_the_overlap_with_every_hole(
    holes: list[tuple[int, float, float]], width_s: float, count: int
) -> None:
    table = hole_table(((node, start, start + length) for node, start, length in holes), *"abcd")
    row, expected = np.array([0, 0, 1, 2]), np.zeros((3, count))
    for node, start_s, end_s in zip(table.node, table.start_s, table.end_s, strict=True):
        for column in range(count):
            left = 2.0 + column * width_s
            overlap = min(end_s, left + width_s) - max(start_s, left)
            expected[row[node], column] += max(0.0, overlap)
    found = idle_seconds(table, Columns(2.0, width_s, count), row, 3)
    np.testing.assert_allclose(found, expected, atol=1e-9)


# Of jobs on named nodes, whatever the order of the log and the size of the buffer.

stretches = st.lists(
    st.tuples(
        st.sets(st.integers(0, 2), min_size=1),
        st.integers(-5, END + 5),
        st.one_of(st.integers(1, 20), st.just(math.inf)),
    ),
    max_size=12,
)


def holes_beside(jobs: list[Stretch], min_hole_s: float = 0.0) -> list[tuple[str, float, float]]:
    found = Occupancy(min_hole_s)
    for nodes, start_s, length_s in jobs:
        found.add(np.array(sorted(nodes), np.int32), start_s, start_s + length_s)
    return rows_of(found.holes(("0", "1", "2"), 0.0, float(END)))


@given(stretches, st.integers(0, 10))
def test_a_node_is_idle_where_no_job_is_for_long_enough(jobs: list[Stretch], least: int) -> None:
    idle = {
        (str(node), second)
        for node in range(3)
        for second in range(END)
        if not any(node in n and start <= second < start + length for n, start, length in jobs)
    }
    found = holes_beside(jobs)
    covered = [(node, at) for node, start, end in found for at in range(int(start), int(end))]
    assert sorted(covered) == sorted(idle)
    long = [one for one in found if one[2] - one[1] >= least]
    assert holes_beside(jobs, least) == long
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occupancy, "_MERGED_AT", 1)  # merging early changes nothing
        assert holes_beside(jobs, least) == long


# Of jobs on numbers of nodes.

sized = st.lists(
    st.tuples(st.integers(-5, END + 5), st.integers(1, 15), st.integers(1, 4)),
    min_size=1,
    max_size=12,
)


def counted(jobs: list[Sized], nodes: int, min_hole_s: float = 0.0) -> HoleTable:
    rows = (
        Job(0, key, start_s, start_s + length_s, nodes=size, node_list="")
        for key, (start_s, length_s, size) in enumerate(jobs)
    )
    return Counts(JobTable.of(rows)).holes(nodes, min_hole_s, 0.0, float(END))


def numbered(holes: HoleTable) -> list[tuple[int, float, float]]:
    columns = holes.node.tolist(), holes.start_s.tolist(), holes.end_s.tolist()
    return list(zip(*columns, strict=True))


@given(sized, st.integers(1, 8))
def test_at_any_time_as_many_nodes_are_idle_as_jobs_leave(jobs: list[Sized], nodes: int) -> None:
    holes = numbered(counted(jobs, nodes))
    for second in range(END):
        idle = [node for node, start, end in holes if start <= second < end]
        busy = sum(size for start, length, size in jobs if start <= second < start + length)
        assert len(idle) == len(set(idle)) == max(0, nodes - busy)
    for (node, _, end), (other, start, _) in pairwise(holes):
        assert node != other or end < start
    whole = numbered(counted(jobs, nodes, 2.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_NODES_AT_A_TIME", 2)  # looking at a few changes nothing
        assert numbered(counted(jobs, nodes, 2.0)) == whole


def test_the_node_freed_last_is_taken_first() -> None:
    holes = counted([(0, 10, 2), (0, 20, 1), (12, 40, 1)], 3)
    assert numbered(holes) == [(0, 10.0, 40.0), (1, 10.0, 12.0), (1, 20.0, 40.0)]


def test_short_holes_are_left_out() -> None:
    jobs = [(0, 10, 1), (15, 30, 1)]
    assert [numbered(counted(jobs, 1, least)) for least in (6.0, 5.0)] == [[], [(0, 10.0, 15.0)]]
