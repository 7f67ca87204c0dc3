"""Nodes in holes that are left to ordinary jobs all the same."""

from __future__ import annotations

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.available import growable, refill
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, picture, view

NODES = frozenset({"n1", "n2", "n3"})
LIFE_S = {"n1": 500.0, "n2": 100.0, "n3": 900.0}


def left(min_idle_s: float = 0.0, reserve: int = 0, **ago_s: float) -> set[str]:
    """Onto which of the nodes trainers may grow; ``ago_s`` is since when some are idle."""
    since_s = dict.fromkeys(NODES, 0.0) | {name: NOW_S - ago for name, ago in ago_s.items()}
    seen = picture(life_s=LIFE_S, since_s=since_s, reserve=reserve)
    return set(growable(NODES, seen, Settings(min_idle_s=min_idle_s)))


def given(reserve: int, *views: TrainerView, free: str = "") -> list[Shrink]:
    return refill(frozenset(free.split()), picture(*views, life_s=LIFE_S, reserve=reserve))


THREE = view(*(element(number, ElementState.RUNNING, f"n{number}") for number in (1, 2, 3)))


def test_by_itself_all_may_be_used() -> None:
    assert left() == NODES


def test_a_node_that_is_idle_only_for_a_moment_is_left_alone() -> None:
    assert left(60, n1=50, n2=60) == {"n2", "n3"}


def test_the_reserve_has_the_nodes_that_are_wanted_soonest() -> None:
    assert left(reserve=2) == {"n3"}


def test_nodes_that_are_left_alone_anyway_count_as_reserve() -> None:
    assert left(60, reserve=1, n3=10) == {"n1", "n2"}


def test_a_reserve_beyond_all_nodes_leaves_none() -> None:
    assert left(reserve=9) == set()


def test_what_is_missing_of_the_reserve_trainers_give_up_the_soonest_wanted_first() -> None:
    why = "its node is kept for ordinary jobs"
    assert given(2, THREE, free="n9") == [Shrink((ElementId(ARRAY, 2),), why)]
    assert given(1, THREE, free="n9") == []


def test_nodes_that_elements_are_leaving_are_waited_for() -> None:
    ending = view(*THREE.trainer.elements[:2], element(3, ElementState.ENDING, "n3"))
    assert given(1, ending) == []


def test_for_the_reserve_no_trainer_goes_below_its_least_size() -> None:
    (action,) = given(9, view(*THREE.trainer.elements, min_nodes=2))
    assert len(action.elements) == 1


def test_nodes_kept_for_a_job_are_left_to_it() -> None:
    kept = frozenset({"n1"})
    assert growable(NODES, picture(), Settings(), kept) == NODES - kept
