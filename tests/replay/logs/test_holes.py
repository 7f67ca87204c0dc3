"""Holes as arrays and as events say the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.replay.logs.holes import HoleTable, between, holes_in, longer, trace_of_holes
from bftrainer_slurm.replay.trace import Trace


@st.composite
def tables(draw: st.DrawFn) -> HoleTable:
    rows = []
    for node in range(3):
        times = sorted(draw(st.sets(st.integers(0, 50), max_size=8)))
        rows += [(node, a, b) for a, b in zip(times[::2], times[1::2], strict=False)]
    node, start_s, end_s = zip(*rows, strict=True) if rows else ((), (), ())
    return HoleTable(
        ("a", "b", "c"), np.array(node, np.int32), np.array(start_s, float), np.array(end_s, float)
    )


def rows(holes: HoleTable) -> list[tuple[str, float, float]]:
    columns = holes.node.tolist(), holes.start_s.tolist(), holes.end_s.tolist()
    return [(holes.nodes[node], start, end) for node, start, end in zip(*columns, strict=True)]


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


@given(tables())
def test_events_and_back(holes: HoleTable) -> None:
    assert rows(holes_in(trace_of_holes(holes, 0.0, 50.0))) == rows(holes)


@given(tables())
def test_the_replay_sees_the_same_holes(holes: HoleTable) -> None:
    assert sorted(as_replayed(trace_of_holes(holes, 0.0, 50.0))) == rows(holes)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1), st.booleans()), max_size=12))
def test_repeated_events_are_read_as_the_replay_reads_them(
    events: list[tuple[int, int, bool]],
) -> None:
    events = sorted(events, key=lambda event: event[0])
    time_s, node, idle = zip(*events, strict=True) if events else ((), (), ())
    columns = np.array(time_s, float), np.array(node, np.int32), np.array(idle, bool)
    trace = Trace(("a", "b"), *columns, 0.0, 20.0)
    assert sorted(rows(holes_in(trace))) == sorted(as_replayed(trace))


@given(tables(), st.integers(0, 25), st.integers(26, 50))
def test_what_is_cut_keeps_the_time_between(holes: HoleTable, first: int, last: int) -> None:
    cut = between(holes, first, last)
    assert (cut.start_s >= first).all()
    assert (cut.end_s <= last).all()
    inside = np.minimum(holes.end_s, last) - np.maximum(holes.start_s, first)
    assert cut.length_s.sum() == np.maximum(inside, 0).sum()


@given(tables(), st.integers(0, 20))
def test_longer_keeps_the_longer_ones(holes: HoleTable, least: int) -> None:
    assert rows(longer(holes, least)) == [row for row in rows(holes) if row[2] - row[1] >= least]
