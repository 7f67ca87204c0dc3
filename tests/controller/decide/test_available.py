"""Which nodes an element can start on now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import Shrink, elements_of
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
from bftrainer_slurm.model import Configuration, NodeState, Reservation, WaitingJob
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
AVOIDED = {"bad": (*bad("n1", NOW_S + 10), *bad("n2", NOW_S - 10))}
ASLEEP = snapshot([node("n1", NodeState.POWERED_DOWN), node("n2")])
LEAVES = view("running n1", elements={0: ElementRecord(Phase.LEAVING, NOW_S, "n1")})


@cases(
    "seen, views, known, names",
    one_that_is_idle_is=(BOTH, [], {}, "n1 n2"),
    one_of_another_partition_is_not=(snapshot([node("n1", partition="other")]), [], {}, ""),
    one_that_is_down_is_not=(snapshot([node("n1", NodeState.UNAVAILABLE)]), [], {}, ""),
    one_that_slurm_has_switched_off_is_not=(ASLEEP, [], {}, "n2"),
    unless_they_may_wake_it=(replace(ASLEEP, settings=Settings(wake_nodes=True)), [], {}, "n1 n2"),
    one_that_drains_is_not=(snapshot([node("n1", NodeState.DRAINING)]), [], {}, ""),
    one_that_was_busy_is_once_its_job_ended=(snapshot([node("n1", NodeState.BUSY)]), [], {}, "n1"),
    one_with_an_ordinary_job_is_not_though_it_was_idle_when_nodes_were_read=(
        snapshot("n1 n2", ordinary_nodes=frozenset({"n1"})), [], {}, "n2"
    ),
    one_with_a_private_job_is_not=(replace(BOTH, unexplained=frozenset({"n1"})), [], {}, "n2"),
    one_that_a_waiting_job_is_about_to_get_is_not=(snapshot("n1 n2", waiting=JOBS), [], {}, "n2"),
    one_in_a_reservation_now_or_soon_is_not=(replace(BOTH, reservations=RESERVED), [], {}, "n2"),
    one_that_slurm_took_for_a_job_is_not_before_that_starts=(BOTH, [], {"taken": {"n1"}}, "n2"),
    one_of_a_trainer_that_cannot_be_handled_is_not=(BOTH, [], {"unhandled_nodes": {"n1"}}, "n2"),
    one_to_avoid_is_not_until_its_time_is_over=(BOTH, [], AVOIDED, "n2"),
    one_where_an_element_runs_is_not=(BOTH, [view("running n1")], {}, "n2"),
    one_where_it_ends_is_not=(BOTH, [view("ending n1")], {}, "n2"),
    one_that_it_is_leaving_is_not=(BOTH, [LEAVES], {}, "n2"),
    one_where_another_has_displaced_it_is_not=(BOTH, [view("running n1", "running n1")], {}, "n2"),
    one_it_will_start_on_is_not=(BOTH, [view("pending", elements={0: released("n1")})], {}, "n2"),
)  # fmt: skip
def test_of_nodes(
    seen: Snapshot, views: list[TrainerView], known: dict[str, object], names: str
) -> None:
    assert free(seen, *views, **known) == named(names)


@pytest.mark.parametrize("settings", [{"preempts": False}, {"exempt_s": 60.0}, {"told": False}])
def test_where_ordinary_jobs_could_not_take_it_back_at_once_no_node_is(settings: Any) -> None:
    seen = replace(BOTH, configuration=Configuration(**settings))
    assert free(seen) == set()
    nodes = frozenset(free_units(cluster(of=seen)))
    (bar,) = bars_on(bars_for_all(cluster(of=seen), SETTINGS), nodes)
    assert (bar.why, bar.nodes) == ("ordinary jobs could not preempt elements", {"n1", "n2"})


def test_a_nodes_hardware_is_the_first_feature_that_the_admin_names() -> None:
    seen = snapshot((replace(node("n1"), features=frozenset({"ib", "a100", "big"})), node("n2")))
    kinds = Settings(hardware=("v100", "a100", "big"))
    assert hardware_of(seen, kinds) == {"n1": "a100", "n2": ""}
    assert hardware_of(seen, Settings()) == {}


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


NODES = named("n1 n2 n3")
LIFE_S = {"n1": 500.0, "n2": 100.0, "n3": 900.0}


@cases(
    "idle_s, settings, kept, names",
    all_may_be_used=({}, {}, {}, "n1 n2 n3"),
    but_not_one_idle_only_for_a_moment=({"n1": 50, "n2": 60}, {"min_idle_s": 60}, {}, "n2 n3"),
    the_reserve_has_the_nodes_that_are_wanted_soonest=({}, {"reserve": 2}, {}, "n3"),
    what_is_left_anyway_is_reserve=({"n3": 10}, {"min_idle_s": 60, "reserve": 1}, {}, "n1 n2"),
    a_reserve_beyond_all_nodes_leaves_none=({}, {"reserve": 9}, {}, ""),
    those_kept_for_a_job_are_left_to_it=({}, {}, {"n1": 1}, "n2 n3"),
)  # fmt: skip
def test_of_idle_nodes(
    idle_s: dict[str, float], settings: dict[str, Any], kept: dict[str, int], names: str
) -> None:
    since_s = dict.fromkeys(NODES, 0.0) | {name: NOW_S - ago_s for name, ago_s in idle_s.items()}
    seen = cluster(life_s=LIFE_S, since_s=since_s, kept=kept)
    assert growable(dict.fromkeys(NODES, 1), seen, Settings(**settings)).keys() == named(names)


THREE = view("held", "running n1", "running n2", "running n3")


@cases(
    "reserve, mine, free, names",
    the_soonest_wanted_first=(2, THREE, "n9", "n2"),
    nothing_where_it_is_full=(1, THREE, "n9", ""),
    nothing_where_an_element_is_leaving=(1, view("held", "running n1", "ending n3"), "", ""),
    no_trainers_least_nodes=(9, view(*THREE.trainer.elements, min_nodes=2), "", "n2"),
)
def test_for_the_reserve_trainers_give_up(
    reserve: int, mine: TrainerView, free: str, names: str
) -> None:
    found = refill(dict.fromkeys(free.split(), 1), cluster(mine, life_s=LIFE_S), reserve)
    assert [mine.placed[one] for one in elements_of(Shrink, found)] == names.split()
