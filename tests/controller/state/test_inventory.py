"""Which nodes there are, when they were out of service, and when a controller has looked."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.state.cluster import Inventory
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import Node, NodeState
from tests.controller.worlds import NOW_S, cases, node, snapshot

DOWN = NodeState.UNAVAILABLE
BOTH = NodeTable((node("n1"), node("n2")))
N2_DOWN = (node("n1"), node("n2", DOWN))


def seen(after_s: float, nodes: tuple[Node, ...]) -> Snapshot:
    return replace(snapshot(nodes), time_s=NOW_S + after_s)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def watched(path: Path, *snapshots: Snapshot) -> None:
    """One controller's life."""
    history = History(path)
    inventory = Inventory(history)
    for one in snapshots:
        inventory.update(one)
    history.close()


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    """A table's rows, with times from NOW_S on."""
    with closing(connect(path)) as history:
        found = history.execute(f"SELECT * FROM {table} ORDER BY 1, 2" if table != "nodes" else
                                "SELECT * FROM nodes ORDER BY 1").fetchall()  # fmt: skip
    return [tuple(v - NOW_S if isinstance(v, float) else v for v in row) for row in found]


def test_the_partitions_nodes_are_known_as_they_come_and_go(path: Path) -> None:
    other = node("x1", partition="other")
    watched(path, seen(0, (*BOTH, other)))
    assert rows(path, "nodes") == [("n1",), ("n2",)]
    watched(path, seen(60, (BOTH[1], node("n3"))))
    assert rows(path, "nodes") == [("n2",), ("n3",)]


DRAINS_AND_BUSY = (node("n1", NodeState.DRAINING), node("n2", NodeState.BUSY))


@cases(
    "lives, outages",
    until_the_node_is_back=([[BOTH, N2_DOWN, N2_DOWN, BOTH]], [("n2", 60, 180)]),
    of_one_that_drains_but_none_of_one_that_is_busy=([[DRAINS_AND_BUSY]], [("n1", 0, None)]),
    over_a_restart=([[N2_DOWN], [N2_DOWN, BOTH]], [("n2", 0, 120)]),
    until_the_node_is_gone=([[N2_DOWN, (node("n1"),)]], [("n2", 0, 60)]),
)
def test_an_outage_lasts(
    path: Path, lives: list[list[tuple[Node, ...]]], outages: list[tuple[object, ...]]
) -> None:
    """There is a look each minute, also of the next controller."""
    minutes = itertools.count()
    for life in lives:
        watched(path, *(seen(60.0 * next(minutes), nodes) for nodes in life))
    assert rows(path, "outages") == outages


@cases(
    "nodes, outages",
    and_begins_anew_if_it_lasts=(N2_DOWN, [("n2", 0, 60), ("n2", 3600, None)]),
    and_that_is_all_if_the_node_is_back=(BOTH, [("n2", 0, 60)]),
)
def test_an_outage_that_nobody_has_watched_ends_when_it_was_last_seen(
    path: Path, nodes: tuple[Node, ...], outages: list[tuple[object, ...]]
) -> None:
    watched(path, seen(0, N2_DOWN), seen(60, N2_DOWN))
    watched(path, seen(3600, nodes))
    assert rows(path, "outages") == outages


def test_a_look_that_reads_no_nodes_writes_nothing_for_a_minute(path: Path) -> None:
    watched(path, seen(0, BOTH), seen(15, BOTH), seen(45, BOTH))
    assert rows(path, "watches") == [(0, 0)]
    watched(path, seen(100, BOTH), seen(130, BOTH), seen(160, BOTH))
    assert rows(path, "watches")[-1] == (100, 160)


def test_a_controller_that_looks_again_and_again_makes_one_watch(path: Path) -> None:
    watched(path, *(seen(60.0 * n, (node("n1"), node("n2"))) for n in range(30)))
    assert rows(path, "watches") == [(0, 60 * 29)]


@pytest.mark.parametrize("away_s", [3600.0, -3600.0])
def test_after_a_long_time_without_a_look_another_watch_begins(path: Path, away_s: float) -> None:
    watched(path, seen(0, BOTH), seen(60, BOTH), seen(60 + away_s, BOTH))
    assert sorted(rows(path, "watches")) == sorted([(0, 60), (60 + away_s, 60 + away_s)])


def test_what_is_older_than_90_days_is_dropped(path: Path) -> None:
    history = History(path)
    inventory = Inventory(history)
    inventory.update(seen(0, N2_DOWN))
    inventory.update(seen(60, BOTH))
    later_s = 91 * 86_400
    for minute in range(61):
        inventory.update(seen(later_s + 60 * minute, BOTH))
    history.forget_old(NOW_S + later_s + 3600)
    history.close()
    assert (rows(path, "outages"), rows(path, "watches")) == ([], [(later_s, later_s + 3600)])
    assert rows(path, "nodes") == [("n1",), ("n2",)]
