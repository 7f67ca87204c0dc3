"""Random events without Slurm: they never take the last node that has the trainer's state.

What becomes of the trainer is judged.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from scripts.elastic_bench.figures import Account
from scripts.elastic_bench.fleet import Node
from scripts.elastic_bench.setups import SETUPS
from scripts.labcluster.stage import REPO
from tests.chaos.fleet import FleetResult, spare_one
from tests.chaos.report import fleet_table


@dataclass(frozen=True)
class Named:
    job: str


def taken(steps: dict[str, int], seed: int = 0) -> set[str]:
    nodes = [cast(Node, Named(job)) for job in steps]
    return {node.job for node in spare_one(nodes, steps, random.Random(seed))}


@pytest.mark.parametrize("seed", range(5))
def test_the_only_node_that_trains_is_spared(seed: int) -> None:
    assert taken({"a": 0, "b": 500, "c": 0}, seed) == {"a", "c"}


@pytest.mark.parametrize("seed", range(5))
def test_a_node_that_fell_far_behind_does_not_count(seed: int) -> None:
    assert taken({"a": 100, "b": 500}, seed) == {"a"}


def test_of_nodes_that_train_together_any_one_is_spared() -> None:
    spared = {next(iter({"a", "b"} - taken({"a": 499, "b": 500}, seed))) for seed in range(20)}
    assert spared == {"a", "b"}


def test_before_the_first_step_all_may_be_taken() -> None:
    assert taken({"a": 0, "b": 0}) == {"a", "b"}


EVENTS = Counter(kill=3, join=4, leave=3)
WELL = FleetResult(SETUPS["inprocess"], EVENTS, 20.0, True, True, Account(500, 2, 0, 400, 0))


def test_a_trainer_that_trains_on_with_equal_weights_is_well() -> None:
    assert WELL.violations == []
    row = fleet_table([WELL]).splitlines()[2].split()
    assert row == [
        *("in-process", "3", "4", "3", "20", "s", "yes", "500", "2", "0"),
        *("0", "of", "400", "steps"),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trains_on": False, "last_words": "no peer"}, "it does not train on: no peer"),
        ({"same_weights": False}, "nodes differ at the end"),
        ({"account": Account(500, 2, 0, 400, 7)}, "nodes differ after 7 of 400 steps"),
    ],
)
def test_what_must_not_become_of_it_is_a_violation(change: dict[str, Any], words: str) -> None:
    lost = replace(WELL, **change)
    assert lost.violations == [words]
    assert f"VIOLATION in-process: {words}" in fleet_table([lost])


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_random_events_end_with_a_trainer_that_trains_on() -> None:
    options = ("--fleet", "2", "--setup", "handler")
    command = [sys.executable, str(REPO / "scripts" / "run"), "chaos", *options]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)
    assert result["trains_on"]
    assert result["same_weights"]
