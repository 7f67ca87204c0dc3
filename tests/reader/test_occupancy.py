"""What nodes were used for over time, beside the same worked out second by second."""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.state.schema import TABLES as SCHEMA
from bftrainer_slurm.reader import occupancy
from bftrainer_slurm.reader.occupancy import Window, nodes_over_time
from bftrainer_slurm.reader.past import MaySee
from tests.page.made_up import Week

NODES = [f"n{number}" for number in range(1, 13)]
END_S = 100.0


def told(
    window: Window,
    nodes: Sequence[str] = NODES,
    watches: Sequence[tuple[float, float]] = ((0, END_S),),
    gpus: int = 0,
    named: MaySee = lambda user: True,
    **rows: Any,
) -> dict[str, Any]:
    """What is told of a history of rows: node, start, end (None: open); allocations: array, GPUs.

    Jobs share the ``gpus`` of each node, if it has any.
    """
    with closing(sqlite3.connect(":memory:")) as history:
        history.executescript(SCHEMA)
        history.executemany("INSERT INTO nodes VALUES (?)", [(node,) for node in nodes])
        history.executemany("INSERT INTO watches VALUES (?, ?)", watches)
        for task, (node, start_s, end_s, array, *part) in enumerate(rows.pop("allocations", ())):
            row = (array, task, node, start_s, end_s, *(part or [0]), gpus)
            history.execute("INSERT INTO allocations VALUES (?, ?, ?, ?, ?, '', ?, ?)", row)
            history.execute(
                "INSERT OR IGNORE INTO trainers VALUES (?, '', 0, ?, ?, 0, 1, 9, '', NULL)",
                (array, f"user{array}", f"job{array}"),
            )
        for table, values in rows.items():  # holes, outages
            history.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", values)
        return nodes_over_time(history, window, END_S, named)


def plane(document: dict[str, Any], name: str) -> Any:
    """One of the planes of cells, as numbers."""
    raw = np.frombuffer(b64decode(document["cells"][name]), dtype=np.uint8)
    return raw.reshape(len(document["rows"]), document["columns"])


def seen(document: dict[str, Any]) -> list[int]:
    return np.frombuffer(b64decode(document["seen"]), dtype=np.uint8).tolist()


def stretches() -> Any:
    """Per node some stretches that do not overlap, as Slurm has it."""
    ends = st.lists(st.integers(0, 100), unique=True, max_size=6).map(sorted)
    return st.dictionaries(st.sampled_from(NODES), ends, max_size=8)


def as_rows(found: dict[str, list[int]]) -> list[tuple[str, int, int]]:
    return [
        (node, start, end)
        for node, times in found.items()
        for start, end in zip(times[::2], times[1::2], strict=False)
    ]


def seconds_in(rows: list[tuple[str, int, int]], nodes: list[str], from_s: int, to_s: int) -> int:
    return sum(max(0, min(b, to_s) - max(a, from_s)) for node, a, b in rows if node in nodes)


@settings(max_examples=60, deadline=None)
@given(found=stretches(), rows=st.integers(1, 12), columns=st.sampled_from([1, 4, 10, 25]))
def test_idle_nodes_are_counted_to_the_second(
    found: dict[str, list[int]], rows: int, columns: int
) -> None:
    holes = as_rows(found)
    document = told(Window(0, END_S, columns, rows), holes=holes)
    width, idle = 100 // columns, plane(document, "idle")
    ordered = [document["rows"][n] for n in range(len(document["rows"]))]
    for row, (first, last, size) in enumerate(ordered):
        nodes = NODES[NODES.index(first) : NODES.index(last) + 1]
        assert len(nodes) == size
        for column in range(columns):
            share = seconds_in(holes, nodes, column * width, (column + 1) * width) / width / size
            assert idle[row, column] == pytest.approx(255 * share, abs=0.51)
    for column, sum_ in enumerate(document["sums"]["idle"]):
        everywhere = seconds_in(holes, NODES, column * width, (column + 1) * width) / width
        assert sum_ == pytest.approx(everywhere, abs=0.01)


def test_the_sums_of_all_uses_are_all_nodes(week: Week, history: Path) -> None:
    with closing(sqlite3.connect(history)) as connection:
        window = Window(week.begin_s, week.now_s, 100, 50)
        document = nodes_over_time(connection, window, week.now_s, lambda user: True)
    sums = np.array([document["sums"][name] for name in ("trainers", "idle", "out", "ordinary")])
    assert sums.min() >= 0
    assert sums.sum(axis=0) == pytest.approx([120.0] * 100, abs=0.05)
    hours = sum(one["node_h"] for one in document["trainers"])
    assert hours == pytest.approx(sums[0].sum() * window_h(window), rel=0.01)


def window_h(window: Window) -> float:
    return (window.to_s - window.from_s) / window.columns / 3600


def test_a_trainers_time_is_not_idle_and_an_open_stretch_lasts_until_now() -> None:
    taken = {"holes": [("n1", 10, None)], "allocations": [("n1", 50, None, 7)]}
    document = told(Window(0, END_S, 10, 12), **taken)
    assert plane(document, "idle")[0].tolist() == [0] + [255] * 4 + [0] * 5
    assert plane(document, "trainers")[0].tolist() == [0] * 5 + [255] * 5
    assert plane(document, "who")[0].tolist() == [0] * 5 + [1] * 5
    assert document["trainers"] == [
        {"array": 7, "user": "user7", "name": "job7"}
        | {"node_h": pytest.approx(50 / 3600, abs=1e-3), "gpu_h": 0.0}
    ]


def test_a_part_of_a_node_counts_as_its_share() -> None:
    """n1 has no ordinary job for 50 s, and n2 always has one; two trainers have parts of both."""
    parts = [("n1", 0, 50, 7, 2), ("n1", 0, 50, 8, 1), ("n2", 0, None, 8, 4)]
    window, holes = Window(0, END_S, columns=2, rows=2), [("n1", 0, 50)]
    document = told(window, ["n1", "n2"], gpus=8, holes=holes, allocations=parts)
    assert plane(document, "trainers").tolist() == [[96, 0], [128, 128]]  # of 255
    assert plane(document, "idle").tolist() == [[159, 0], [0, 0]]
    assert document["sums"]["ordinary"] == [0.5, 1.5]
    hours = {one["array"]: one["node_h"] * 3600 for one in document["trainers"]}
    assert hours == pytest.approx({7: 50 * 2 / 8, 8: 50 / 8 + 50}, abs=2)
    gpu_hours = {one["array"]: one["gpu_h"] * 3600 for one in document["trainers"]}
    assert gpu_hours == pytest.approx({7: 50 * 2, 8: 50 + 400}, abs=2)


def test_a_cell_is_the_trainers_that_has_most_of_it_and_says_how_much() -> None:
    """On n1 trainer 8 has been longest, and trainer 7 has most GPUs; then 9 comes to n2."""
    parts = [("n1", 0, None, 8, 1), ("n1", 0, 50, 7, 6), ("n2", 50, None, 9, 2)]
    document, mixed = (
        told(Window(0, END_S, columns=2, rows=rows), ["n1", "n2"], gpus=8, allocations=parts)
        for rows in (2, 1)
    )
    code = {one["array"]: place for place, one in enumerate(document["trainers"], 1)}
    assert plane(document, "who").tolist() == [[code[7], code[8]], [0, code[9]]]
    assert plane(document, "theirs").tolist() == [[191, 32], [0, 64]]  # of 255
    assert plane(document, "trainers").tolist() == [[223, 32], [0, 64]]
    assert plane(mixed, "who").tolist() == [[code[7], code[9]]]
    assert plane(mixed, "theirs").tolist() == [[96, 32]]


def test_nodes_out_of_service_are_told_from_ordinary_jobs() -> None:
    document = told(Window(0, END_S, 2, 12), outages=[("n2", 0, 50)])
    assert plane(document, "out")[1].tolist() == [255, 0]
    assert document["sums"]["ordinary"] == [11, 12]


def test_times_that_nobody_has_watched_are_told() -> None:
    document = told(Window(0, END_S, 5, 12), watches=((0, 20), (60, END_S)))
    assert seen(document) == [255, 0, 0, 255, 255]


def test_nodes_are_ordered_as_people_count_and_rows_are_bounded() -> None:
    document = told(Window(0, END_S, 1, 5))
    assert [row[:2] for row in document["rows"]] == [
        *(["n1", "n3"], ["n4", "n6"], ["n7", "n9"], ["n10", "n12"]),
    ]


def test_some_of_the_nodes_can_be_asked_for() -> None:
    holes = [("n5", 0, None), ("n9", 0, None)]
    document = told(Window(0, END_S, 1, 12, first=4, last=6), holes=holes)
    assert [row[0] for row in document["rows"]] == ["n5", "n6"]
    assert document["nodes"] == 12
    assert plane(document, "idle").tolist() == [[255], [0]]


@pytest.mark.parametrize("nodes", [[], ["n1"]])
def test_an_empty_history_has_an_answer(nodes: list[str]) -> None:
    document = told(Window(0, END_S, 10, 12), nodes, watches=())
    assert len(document["rows"]) == len(nodes)
    assert document["sums"]["idle"] == [0.0] * 10


def test_trainers_that_may_not_be_named_share_a_code() -> None:
    allocations = [("n1", 0, None, 7), ("n2", 0, None, 8)]
    document = told(
        Window(0, END_S, 1, 12), named=lambda user: user == "user8", allocations=allocations
    )
    assert [one["array"] for one in document["trainers"]] == [8]
    assert plane(document, "who")[:2].tolist() == [[255], [1]]


def test_more_trainers_than_codes_share_one_the_smallest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(occupancy, "_MOST_TRAINERS", 2)
    allocations = [("n1", 0, 30, 7), ("n2", 0, 90, 8), ("n3", 0, 60, 9)]
    document = told(Window(0, END_S, 10, 12), allocations=allocations)
    assert [one["array"] for one in document["trainers"]] == [8, 9]
    assert plane(document, "who")[:3, 0].tolist() == [255, 1, 2]


def test_of_too_many_stretches_the_earliest_are_left_out_and_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(occupancy, "_MOST_INTERVALS", 3)
    holes = [("n1", start, start + 5) for start in range(0, 100, 10)]
    document = told(Window(0, END_S, 10, 12), holes=holes)
    assert plane(document, "idle")[0].tolist() == [0] * 7 + [128] * 3
    assert (seen(document)[:7], seen(document)[8:]) == ([0] * 7, [255] * 2)
