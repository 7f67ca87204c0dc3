"""A small run of ``scripts/run bench-scale``, and how it is called. Nothing rests on its times."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.settings import Settings
from scripts.benchkit.command import json_text
from scripts.labcluster.processes import processes_with
from scripts.labcluster.waiting import wait_until
from scripts.scale_bench.course import Size
from scripts.scale_bench.measure import Found, measure
from scripts.scale_bench.report import phase, tables, targets
from tests.tools import run_tool, tool

SIZE = Size(nodes=200, trainers=10, elements=100, minutes=0.2, seed=1, bf_interval_s=1)
SOON = Settings(queue_interval_s=1.0, nodes_interval_s=2.0, reservations_interval_s=5.0)


@pytest.fixture(scope="module")
def found() -> Found:
    return measure(SIZE, SOON)


def test_the_controller_gives_all_nodes_to_trainers(found: Found) -> None:
    assert phase(found, "start").elements == SIZE.elements
    assert phase(found, "at rest").elements == SIZE.elements


def test_it_leaves_a_cluster_at_rest_alone(found: Found) -> None:
    rest = phase(found, "at rest")
    assert len(rest.looks) >= 2
    assert not any(look.moved for look in rest.looks)


def test_ordinary_jobs_that_change_are_read(found: Found) -> None:
    assert any(look.read_bytes > 0 for look in phase(found, "ordinary jobs change").looks)


def test_each_look_costs_at_least_one_rpc(found: Found) -> None:
    assert all(one.rpcs >= len(one.looks) > 0 for one in found.phases)


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
    assert "a real one of this size cannot be had here" in text
    assert all(one.name in text for one in found.phases)


def test_the_document_has_every_look(found: Found) -> None:
    read = json.loads(json_text(found))
    assert [len(one["looks"]) for one in read["phases"]] == [len(one.looks) for one in found.phases]


def test_each_target_is_judged(found: Found) -> None:
    judged = {one.text: one for one in targets(found)}
    assert len(judged) == 9
    assert judged["neighbours that started by themselves after it"].met
    assert judged["20 scattered elements reclaimed: s until the last is held"].found < math.inf


def test_requests_that_are_turned_away_count_only_under_rl_enable(found: Found) -> None:
    limited = replace(found, size=replace(found.size, rl_enable=True))
    assert len(targets(limited)) == len(targets(found)) + 1


def test_more_elements_than_fit_are_refused() -> None:
    done = run_tool("bench-scale", "--nodes=100", "--elements=100")
    assert done.returncode == 2
    assert "--elements 100" in done.stderr


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
    assert processes_with(f"TMPDIR={tmp_path}") == []
