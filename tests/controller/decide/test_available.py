"""Which nodes an element can start on now, for how long, and until when it is kept there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import EndAt, Shrink, elements_of
from bftrainer_slurm.controller.decide.available import (
    bars_for_all,
    bars_on,
    free_units,
    growable,
    hardware_of,
    keep_limits,
    limits_at_start,
    nodes_off,
    refill,
)
from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.publish.status import barred
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import WENT_WRONG, Bar
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Configuration,
    Element,
    NodeState,
    Queue,
    Reservation,
    TimeLimit,
    WaitingJob,
)
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    bad,
    cases,
    cluster,
    element,
    named,
    node,
    released,
    snapshot,
    trainer,
    view,
    view_of,
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


# For how long.

OPERATOR, OWNER = Settings(operator=True), Settings(operator=False)
MINUTE, HOUR = 60.0, 3600.0
NEAR, COURSE = "near its time limit", "its node is reserved (course)"


def claims(
    *reservations: Reservation, waiting: tuple[WaitingJob, ...] = (), minutes: int | None = None
) -> Snapshot:
    queue = Queue((), waiting, frozenset())
    configuration = Configuration(partition_minutes=minutes)
    return Snapshot(NOW_S, NodeTable(), queue, reservations, configuration)


def reserved(in_s: float, for_s: float = HOUR, node: str = "n1") -> Reservation:
    return Reservation("course", NOW_S + in_s, NOW_S + in_s + for_s, (node,))


def wanted(*in_s: float | None, node: str = "n1") -> Snapshot:
    """Jobs that Slurm expects to start there then, or does not say when."""
    starts = (None if one is None else NOW_S + one for one in in_s)
    return claims(waiting=tuple(WaitingJob(7, "main", 1, one, (node,)) for one in starts))


def running(ran_s: float, left_s: float | None, task: int = 1, node: str = "n1") -> Element:
    """An element; no time left is no limit."""
    times = {} if left_s is None else {"limit_end_s": NOW_S + left_s}
    return element(task, "running", node, start_s=NOW_S - ran_s, **times)


Kept = list[tuple[tuple[int, ...], float | str]]


def kept(
    *elements: Element, settings: Settings, user: int | None = None, by: Snapshot | None = None
) -> Kept:
    """Which tasks are to end then (seconds from now), or to leave at once, and why."""
    found = keep_limits(view_of(trainer(*elements, minutes=user)), by or claims(), settings)
    return [
        (
            tuple(id_.task for id_ in one.elements),
            one.end_s - NOW_S if isinstance(one, EndAt) else one.why,
        )
        for one in found
    ]


@cases(
    "by, user, operator, owner",
    an_hour=(claims(), None, (60, 10), (60, 60)),
    an_hour_of_a_day=(claims(), 1440, (60, 10), (60, 60)),
    what_its_user_asked_for=(claims(), 5, (5, 5), (5, 5)),
    what_the_partition_allows=(claims(minutes=30), None, (30, 10), (30, 30)),
    a_hole_before_a_job=(wanted(42 * MINUTE), None, (60, 10), (60, 40)),
    a_short_hole=(wanted(5 * MINUTE), None, (60, 3), (60, 3)),
    the_shortest_hole=(wanted(90), None, (60, 1), (60, 1)),
    a_long_hole=(wanted(9 * HOUR), None, (60, 10), (60, 60)),
    another_nodes_hole=(wanted(MINUTE, node="n2"), None, (60, 10), (60, 60)),
    a_job_without_a_forecast=(wanted(None), None, (60, 10), (60, 10)),
    one_beside_it=(wanted(42 * MINUTE, None), None, (60, 10), (60, 40)),
    up_to_a_reservation=(claims(reserved(1860)), None, (30, 10), (30, 30)),
    one_far_ahead=(claims(reserved(9 * HOUR)), None, (60, 10), (60, 60)),
    one_too_soon=(claims(reserved(110)), None, None, None),
    one_that_is_active=(claims(reserved(-60)), None, None, None),
    one_that_is_over=(claims(reserved(-HOUR, 60)), None, (60, 10), (60, 60)),
    of_another_node=(claims(reserved(60, node="n2")), None, (60, 10), (60, 60)),
    the_first=(claims(reserved(2 * HOUR), reserved(1860)), None, (30, 10), (30, 30)),
)
def test_the_limit_that_a_start_asks_for(
    by: Snapshot, user: int | None, operator: tuple[int, int] | None, owner: tuple[int, int] | None
) -> None:
    for settings, pair in ((OPERATOR, operator), (OWNER, owner)):
        limits = limits_at_start(named("n1"), user, by, settings)
        assert limits == ({} if pair is None else {TimeLimit(*pair): named("n1")})


def test_nodes_that_are_kept_for_equally_long_get_one_limit() -> None:
    by = claims(reserved(1860, node="n2"), reserved(1870, node="n3"), reserved(0, node="n4"))
    limits = limits_at_start(named("n1 n2 n3 n4"), None, by, OPERATOR)
    assert limits == {TimeLimit(60, 10): named("n1"), TimeLimit(30, 10): named("n2 n3")}


ENDING = element(1, "ending n1", start_s=NOW_S - 3580, limit_end_s=NOW_S + 1)
ELSEWHERE = {"by": claims(reserved(0, node="n2"), reserved(-HOUR, 60))}
SOON = {"by": claims(reserved(89))}
OLDER = running(1900, 1700, 2, "n2")
TOGETHER = [running(3480, 120, 0), running(3480, 120, 1, "n2")]


@cases(
    "who, elements, more, changes",
    far_from_its_limit=("both", [running(0, HOUR)], {}, []),
    ending=("owner", [ENDING], {}, []),
    more_than_half_an_hour_left=("operator", [running(1799, 1801)], {}, []),
    lengthened_to_an_hour=("operator", [running(1801, 1799)], {}, [((1,), HOUR)]),
    in_one_request=("operator", [running(600, 3000), OLDER], {}, [((1, 2), HOUR)]),
    an_owners_with_time_left=("owner", [running(3000, 100)], {}, []),
    an_owners_near_its_limit=("owner", [running(3580, 29)], {}, [((1,), NEAR)]),
    every_second_one_of_those_that_began_together=("owner", TOGETHER, {}, [((0,), NEAR)]),
    begun_before_the_clock_was_set_back=("owner", [running(-2 * HOUR, 29, 0)], {}, [((0,), NEAR)]),
    up_to_the_users_own_limit=("operator", [running(40, 20)], {"user": 5}, [((1,), 260)]),
    never_past_it=("operator", [running(280, 20)], {"user": 5}, [((1,), NEAR)]),
    none_where_one_can_have_no_more=(
        "operator", [running(600, 1140), running(600, 3000, 2, "n2")],
        {"by": claims(reserved(1200))}, [],
    ),
    more_than_an_hour_is_cut=("both", [running(60, 24 * HOUR)], {"user": 1440}, [((1,), HOUR)]),
    reserved_elsewhere_or_in_the_past=("both", [running(600, 3000)], ELSEWHERE, []),
    # One made with IGNORE_JOBS, or Slurm would not have made it.
    past_reservation=("both", [running(60, 1800)], {"by": claims(reserved(1800))}, [((1,), 1740)]),
    about_to_be_reserved=("both", [running(600, 3000)], SOON, [((1,), COURSE)]),
    and_without_a_limit=("both", [running(600, None)], SOON, [((1,), COURSE)]),
    reserved_now=("both", [running(600, 3000)], {"by": claims(reserved(-60))}, [((1,), COURSE)]),
)  # fmt: skip
def test_limits_are_kept_of_those(
    who: str, elements: list[Element], more: dict[str, Any], changes: Kept
) -> None:
    for name, settings in (("operator", OPERATOR), ("owner", OWNER)):
        if who in (name, "both"):
            assert kept(*elements, settings=settings, **more) == changes


@pytest.mark.parametrize("settings", [OPERATOR, OWNER], ids=["operator", "owner"])
@pytest.mark.parametrize("in_s", [1800, 9 * HOUR])
@pytest.mark.parametrize("left_s", [24 * HOUR, 3000.0, 600.0])
def test_what_is_set_is_not_set_again(settings: Settings, in_s: float, left_s: float) -> None:
    by = claims(reserved(in_s))
    for _, end_s in kept(running(60, left_s), by=by, settings=settings):
        assert isinstance(end_s, float)
        assert kept(running(60, end_s), by=by, settings=settings) == []
