"""Which nodes an element can start on now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.available import (
    bars_for_all,
    bars_on,
    free_units,
    growable,
    hardware_of,
    nodes_off,
    refill,
)
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.publish.status import barred
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import WENT_WRONG, Bar
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Configuration, ElementId, NodeState, Reservation, WaitingJob
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    bad,
    cases,
    cluster,
    named,
    node,
    released,
    snapshot,
    view,
)

SETTINGS = Settings(min_hole_s=60)
BOTH = snapshot("n1 n2")


def free(seen: Snapshot, *views: TrainerView, **known: object) -> set[str]:
    now = cluster(*views, of=seen, **known)
    return set(free_units(now, nodes_off(bars_for_all(now, SETTINGS))))


JOBS = (
    WaitingJob(7, "main", 1, NOW_S + 30, ("n1",)),
    WaitingJob(8, "main", 1, NOW_S + 300, ("n2",)),
)
RESERVED = (
    Reservation("soon", NOW_S + 30, NOW_S + 3600, ("n1",)),
    Reservation("over", NOW_S - 3600, NOW_S, ("n2",)),
)


@cases(
    "seen, names",
    one_that_is_idle_is=(snapshot("n1"), {"n1"}),
    one_of_another_partition_is_not=(snapshot([node("n1", partition="other")]), set()),
    one_that_is_down_is_not=(snapshot([node("n1", NodeState.UNAVAILABLE)]), set()),
    one_that_slurm_has_switched_off_is_not=(
        snapshot([node("n1", NodeState.POWERED_DOWN), node("n2")]),
        {"n2"},
    ),
    but_it_is_where_trainers_may_wake_it=(
        replace(snapshot([node("n1", NodeState.POWERED_DOWN)]), settings=Settings(wake_nodes=True)),
        {"n1"},
    ),
    one_that_drains_is_not=(snapshot([node("n1", NodeState.DRAINING)]), set()),
    one_that_was_busy_is_once_no_job_is_on_it=(snapshot([node("n1", NodeState.BUSY)]), {"n1"}),
    one_with_an_ordinary_job_is_not_though_it_was_idle_when_nodes_were_read=(
        snapshot("n1 n2", ordinary_nodes=frozenset({"n1"})),
        {"n2"},
    ),
    one_with_a_job_that_nobody_may_see_is_not=(
        replace(BOTH, unexplained=frozenset({"n1"})),
        {"n2"},
    ),
    one_that_a_waiting_job_is_about_to_get_is_not=(snapshot("n1 n2", waiting=JOBS), {"n2"}),
    one_in_a_reservation_now_or_soon_is_not=(replace(BOTH, reservations=RESERVED), {"n2"}),
)
def test_of_nodes(seen: Snapshot, names: set[str]) -> None:
    assert free(seen) == names


@cases(
    "known",
    that_slurm_took_for_a_job_that_has_not_started_yet={"taken": frozenset({"n1"})},
    of_a_trainer_that_cannot_be_handled={"unhandled_nodes": frozenset({"n1"})},
    to_avoid_until_its_time_is_over={"bad": (*bad("n1", NOW_S + 10), *bad("n2", NOW_S - 10))},
)
def test_not_available_is_a_node(known: dict[str, object]) -> None:
    assert free(BOTH, **known) == {"n2"}


def test_a_node_with_an_element_that_runs_leaves_or_ends_is_not_available() -> None:
    leaving = {2: ElementRecord(Phase.LEAVING, NOW_S, "n3")}
    mine = view("running n1", "ending n2", "running n3", elements=leaving)
    assert mine.nodes == named("n1")
    assert free(snapshot("n1 n2 n3 n4"), mine) == {"n4"}


@cases(
    "mine",
    on_which_one_runs_that_another_has_displaced=view("running n1", "running n1"),
    that_one_is_about_to_start_on=view("pending", elements={0: released("n1")}),
)
def test_nor_is_a_node_of_an_element(mine: TrainerView) -> None:
    assert free(BOTH, mine) == {"n2"}


@pytest.mark.parametrize("settings", [{"preempts": False}, {"exempt_s": 60.0}, {"told": False}])
def test_where_ordinary_jobs_could_not_take_it_back_at_once_no_node_is(settings: Any) -> None:
    seen = replace(BOTH, configuration=Configuration(**settings))
    assert free(seen) == set()
    nodes = frozenset(free_units(cluster(of=seen)))
    (bar,) = bars_on(bars_for_all(cluster(of=seen), SETTINGS), nodes)
    assert (bar.why, bar.nodes) == ("ordinary jobs could not preempt elements", {"n1", "n2"})


def test_of_a_partition_some_nodes_are_in_service_and_some_are_not() -> None:
    seen = snapshot((
        node("n1", NodeState.BUSY), node("n2", NodeState.UNAVAILABLE), node("n3", partition="other")
    ))  # fmt: skip
    assert seen.in_service == {"n1"}
    assert seen.all_nodes == {"n1", "n2"}


def test_a_nodes_hardware_is_the_first_feature_that_the_admin_names() -> None:
    seen = snapshot((replace(node("n1"), features=frozenset({"ib", "a100", "big"})), node("n2")))
    kinds = Settings(hardware=("v100", "a100", "big"))
    assert hardware_of(seen, kinds) == {"n1": "a100", "n2": ""}
    assert hardware_of(seen, Settings()) == {}


def test_idle_nodes_that_are_left_alone_are_told_by_why() -> None:
    soon = Reservation("maintenance", NOW_S + 60, NOW_S + 600, ("n2", "n9"))
    seen = replace(BOTH, reservations=(soon,))
    now = cluster(of=seen, bad=bad("n1", NOW_S + 60))
    found = bars_on(bars_for_all(now, SETTINGS), frozenset(free_units(now)))
    assert {one.why: set(one.nodes) for one in found} == {WENT_WRONG: {"n1"}, "reserved": {"n2"}}


def test_what_bars_idle_nodes_is_told_for_all_and_for_one_trainer() -> None:
    now = cluster(of=BOTH, bad=bad("n1", NOW_S + 60))
    bars = [*bars_for_all(now, SETTINGS), Bar("it lacks a feature", frozenset({"n1", "n2"}), ARRAY)]
    told = barred(bars_on(bars, frozenset({"n1"})), NOW_S)
    assert told == {
        None: [{"why": WENT_WRONG, "nodes": 1, "some": ["n1"], "for_s": 60.0}],
        ARRAY: [{"why": "it lacks a feature", "nodes": 1, "some": ["n1"], "for_s": None}],
    }
    assert (nodes_off(bars), nodes_off(bars, ARRAY)) == ({"n1"}, {"n1", "n2"})
    assert next(one.until_s for one in bars if one.why == WENT_WRONG) == NOW_S + 60


NODES = frozenset({"n1", "n2", "n3"})
LIFE_S = {"n1": 500.0, "n2": 100.0, "n3": 900.0}


def left(min_idle_s: float = 0.0, reserve: int = 0, **ago_s: float) -> set[str]:
    """Onto which of the nodes trainers may grow; ``ago_s`` is since when some are idle."""
    since_s = dict.fromkeys(NODES, 0.0) | {name: NOW_S - ago for name, ago in ago_s.items()}
    seen = cluster(life_s=LIFE_S, since_s=since_s)
    settings = Settings(min_idle_s=min_idle_s, reserve=reserve)
    return set(growable(dict.fromkeys(NODES, 1), seen, settings))


def given(reserve: int, *views: TrainerView, free: str = "") -> list[Shrink]:
    return refill(dict.fromkeys(free.split(), 1), cluster(*views, life_s=LIFE_S), reserve)


THREE = view("held", "running n1", "running n2", "running n3")


@cases(
    "asked, names",
    all_may_be_used=({}, NODES),
    but_not_one_that_is_idle_only_for_a_moment=(
        {"min_idle_s": 60, "n1": 50, "n2": 60},
        {"n2", "n3"},
    ),
    the_reserve_has_the_nodes_that_are_wanted_soonest=({"reserve": 2}, {"n3"}),
    what_is_left_alone_anyway_counts_as_reserve=(
        {"min_idle_s": 60, "reserve": 1, "n3": 10},
        {"n1", "n2"},
    ),
    a_reserve_beyond_all_nodes_leaves_none=({"reserve": 9}, set()),
)
def test_of_idle_nodes(asked: dict[str, Any], names: set[str]) -> None:
    assert left(**asked) == names


def test_what_is_missing_of_the_reserve_trainers_give_up_the_soonest_wanted_first() -> None:
    why = "its node is kept for ordinary jobs"
    assert given(2, THREE, free="n9") == [Shrink((ElementId(ARRAY, 2),), why)]
    assert given(1, THREE, free="n9") == []


def test_nodes_that_elements_are_leaving_are_waited_for() -> None:
    assert given(1, view("held", "running n1", "running n2", "ending n3")) == []


def test_for_the_reserve_no_trainer_goes_below_its_least_size() -> None:
    (action,) = given(9, view(*THREE.trainer.elements, min_nodes=2))
    assert len(action.elements) == 1


def test_nodes_kept_for_a_job_are_left_to_it() -> None:
    kept = cluster(kept={"n1": 1})
    assert growable(dict.fromkeys(NODES, 1), kept, Settings()) == {"n2": 1, "n3": 1}
