"""Nodes in holes that are left to ordinary jobs all the same."""

from __future__ import annotations

from bftrainer_slurm.controller.clear import keep_clear
from bftrainer_slurm.controller.settings import Settings

NODES = frozenset({"n1", "n2", "n3"})


def clear(settings: Settings, **since_s: float) -> set[str]:
    life_s = {"n1": 500.0, "n2": 100.0, "n3": 900.0}
    return set(keep_clear(NODES, dict.fromkeys(NODES, 0.0) | since_s, life_s, 1000.0, settings))


def test_by_itself_all_may_be_used() -> None:
    assert clear(Settings()) == NODES


def test_a_node_that_is_idle_only_for_a_moment_is_left_alone() -> None:
    assert clear(Settings(min_idle_s=60), n1=950.0, n2=940.0) == {"n2", "n3"}


def test_the_reserve_has_the_nodes_that_are_wanted_soonest() -> None:
    assert clear(Settings(reserve_nodes=2)) == {"n3"}


def test_nodes_that_are_left_alone_anyway_count_as_reserve() -> None:
    assert clear(Settings(reserve_nodes=1, min_idle_s=60), n3=990.0) == {"n1", "n2"}


def test_a_reserve_beyond_all_nodes_leaves_none() -> None:
    assert clear(Settings(reserve_nodes=9)) == set()
