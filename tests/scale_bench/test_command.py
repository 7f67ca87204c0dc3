"""A small run of ``scripts/run bench-scale``, and how it is called. Nothing rests on its times."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from bftrainer_slurm.controller.settings import Settings
from scripts.labcluster.processes import processes_with
from scripts.labcluster.waiting import wait_until
from scripts.scale_bench.course import Size
from scripts.scale_bench.measure import Found, measure
from scripts.scale_bench.report import phase, tables
from tests.tools import tool

SIZE = Size(nodes=200, trainers=10, elements=100, minutes=0.2, seed=1, bf_interval_s=1)
SOON = Settings(queue_interval_s=1.0, nodes_interval_s=2.0, reservations_interval_s=5.0)


@pytest.fixture(scope="module")
def found() -> Found:
    return measure(SIZE, SOON)


def test_the_controller_gives_all_nodes_to_trainers(found: Found) -> None:
    assert phase(found, "start").elements == SIZE.elements
    assert phase(found, "at rest").elements == SIZE.elements


def test_nodes_that_are_freed_at_once_are_all_given_away(found: Found) -> None:
    freed = phase(found, "nodes freed at once")
    [change] = freed.changes
    assert change.size >= SIZE.joins
    assert change.took_s is not None
    assert freed.moves_s


@pytest.mark.parametrize(
    ("before", "taken"),
    [
        ("nodes freed at once", "neighbours reclaimed at once"),
        ("and given back", "scattered ones reclaimed"),
    ],
)
def test_elements_that_are_reclaimed_at_once_are_all_held(
    found: Found, before: str, taken: str
) -> None:
    [change] = phase(found, taken).changes
    assert change.size == SIZE.reclaims
    assert change.took_s is not None
    assert phase(found, taken).elements == phase(found, before).elements - SIZE.reclaims
    assert phase(found, taken).started_alone == 0


def test_no_turn_of_the_controller_fails(found: Found) -> None:
    assert (found.failed_turns, found.trouble) == (0, None)


def test_the_table_says_what_is_simulated_and_names_each_phase(found: Found) -> None:
    text = "\n".join(tables(found))
    assert "because this host cannot run so many" in text
    assert all(one.name in text for one in found.phases)


def test_nothing_is_left_behind_when_it_is_stopped(tmp_path: Path) -> None:
    bench = subprocess.Popen(
        tool("bench-scale", "--nodes=100", "--elements=50"),
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: [*tmp_path.glob("*/keeper.json")])
        bench.send_signal(signal.SIGTERM)
        _, said = bench.communicate(timeout=120)
        assert bench.returncode != 0
        assert "Traceback" not in said
    finally:
        bench.kill()
    assert [*tmp_path.iterdir()] == []
    wait_until(lambda: not processes_with(f"TMPDIR={tmp_path}"))  # in a moment
