"""Random events never take the last node that has the trainer's state."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import cast

import pytest

from scripts.elastic_bench.chaos import spare_one
from scripts.elastic_bench.fleet import Node


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
