"""What nodes were used for over time, beside the same worked out second by second."""

from __future__ import annotations

import math
import sqlite3
from base64 import b64decode
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.state.schema import TABLES as SCHEMA
from bftrainer_slurm.reader import occupancy
from bftrainer_slurm.reader.occupancy import Window, nodes_over_time
from bftrainer_slurm.reader.past import MaySee

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


# What a node is used for: a trainer has so many of its 8 GPUs, or all of it where nobody shares.
USES = ("ordinary", "idle", "out", (7, 8), (8, 8), (8, 2), (9, 6))


@settings(max_examples=100)
@given(
    used=st.dictionaries(
        st.sampled_from(NODES),
        st.lists(st.tuples(st.integers(1, 60), st.sampled_from(USES)), max_size=6),
    ),
    shared=st.booleans(),
    rows=st.integers(1, 12),
    columns=st.sampled_from([1, 4, 10, 25]),
    first=st.integers(0, 11),
)
def test_all_uses_of_nodes_are_counted_to_the_second(
    used: dict[str, list[tuple[int, Any]]], shared: bool, rows: int, columns: int, first: int
) -> None:
    """What lasts until the end is still open; a cell names who has most of it, and how much."""
    share = {use: np.zeros((len(NODES), 100)) for use in ("idle", "out", 7, 8, 9)}
    tables: dict[str, list[Any]] = {"holes": [], "outages": [], "allocations": []}
    for node, course in used.items():
        begin = 0
        for lasts, use in course:
            during = np.s_[NODES.index(node), begin : begin + lasts]
            stretch = (node, begin, begin + lasts if begin + lasts < END_S else None)
            begin += lasts
            if stretch[1] >= END_S or use == "ordinary":
                continue
            tables["outages" if use == "out" else "holes"].append(stretch)
            if isinstance(use, str):
                share[use][during] = 1
                continue
            trainer, gpus = use
            tables["allocations"].append((*stretch, trainer, *([gpus] if shared else [])))
            share[trainer][during] = gpus / 8 if shared else 1
            share["idle"][during] = 1 - share[trainer][during]
    last = min(first + 7, len(NODES))
    window = Window(0, END_S, columns, rows, first, last)
    document = told(window, gpus=8 if shared else 0, **tables)
    each = math.ceil((last - first) / rows)
    groups = [range(start, min(start + each, last)) for start in range(first, last, each)]
    assert document["rows"] == [[NODES[one[0]], NODES[one[-1]], len(one)] for one in groups]
    counts = {
        use: np.array(
            [seconds[one].sum(axis=0).reshape(columns, -1).mean(axis=1) for one in groups]
        )
        for use, seconds in share.items()
    }
    trainers = counts["trainers"] = counts[7] + counts[8] + counts[9]
    most = counts["theirs"] = np.max([counts[7], counts[8], counts[9]], axis=0)
    sizes = np.array([[len(one)] for one in groups])
    for use in ("trainers", "theirs", "idle", "out"):
        assert plane(document, use) == pytest.approx(255 * counts[use] / sizes, abs=0.51)
    counts["ordinary"] = sizes - trainers - counts["idle"] - counts["out"]
    for use, sums in document["sums"].items():
        assert sums == pytest.approx(counts[use].sum(axis=0), abs=0.01)
    arrays = [one["array"] for one in document["trainers"]]
    theirs = np.choose(plane(document, "who"), [0 * most, *(counts[array] for array in arrays)])
    assert theirs == pytest.approx(most)
    hours = [counts[array].sum() * 100 / columns / 3600 for array in arrays]
    assert [one["node_h"] for one in document["trainers"]] == pytest.approx(hours, abs=1e-3)
    gpu_hours = [8 * one if shared else 0.0 for one in hours]
    assert [one["gpu_h"] for one in document["trainers"]] == pytest.approx(gpu_hours, abs=1e-3)


def test_times_that_nobody_has_watched_are_told() -> None:
    document = told(Window(0, END_S, 5, 12), watches=((0, 20), (60, END_S)))
    assert seen(document) == [255, 0, 0, 255, 255]


@pytest.mark.parametrize("nodes", [[], ["n1"]])
def test_an_empty_history_has_an_answer(nodes: list[str]) -> None:
    document = told(Window(0, END_S, 10, 12), nodes, watches=())
    assert len(document["rows"]) == len(nodes)
    assert document["sums"]["idle"] == [0.0] * 10


def test_the_smallest_trainers_and_those_that_may_not_be_named_share_a_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(occupancy, "_MOST_TRAINERS", 2)
    allocations = [("n1", 0, 30, 7), ("n2", 0, 90, 8), ("n3", 0, 60, 9), ("n4", 0, None, 6)]
    window = Window(0, END_S, 10, 12)
    document = told(window, named=lambda user: user != "user6", allocations=allocations)
    assert [one["array"] for one in document["trainers"]] == [8, 9]
    assert plane(document, "who")[:4, 0].tolist() == [255, 1, 2, 255]


def test_of_too_many_stretches_the_earliest_are_left_out_and_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(occupancy, "_MOST_INTERVALS", 3)
    holes = [("n1", start, start + 5) for start in range(0, 100, 10)]
    document = told(Window(0, END_S, 10, 12), holes=holes)
    assert plane(document, "idle")[0].tolist() == [0] * 7 + [128] * 3
    assert (seen(document)[:7], seen(document)[8:]) == ([0] * 7, [255] * 2)
