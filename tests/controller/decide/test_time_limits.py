"""How long elements may stay where they start, and until when they are kept there."""

from __future__ import annotations

from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import EndAt
from bftrainer_slurm.controller.decide.available import keep_limits, limits_at_start
from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import Configuration, Element, Queue, Reservation, TimeLimit, WaitingJob
from tests.controller.worlds import NOW_S, cases, element, named, trainer, view_of

OPERATOR, OWNER = Settings(operator=True), Settings(operator=False)
BOTH = pytest.mark.parametrize("settings", [OPERATOR, OWNER], ids=["operator", "owner"])
MINUTE, HOUR = 60.0, 3600.0
NEAR, RESERVED = "near its time limit", "its node is reserved (course)"


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
    about_to_be_reserved=("both", [running(600, 3000)], SOON, [((1,), RESERVED)]),
    and_without_a_limit=("both", [running(600, None)], SOON, [((1,), RESERVED)]),
    reserved_now=("both", [running(600, 3000)], {"by": claims(reserved(-60))}, [((1,), RESERVED)]),
)  # fmt: skip
def test_limits_are_kept_of_those(
    who: str, elements: list[Element], more: dict[str, Any], changes: Kept
) -> None:
    for name, settings in (("operator", OPERATOR), ("owner", OWNER)):
        if who in (name, "both"):
            assert kept(*elements, settings=settings, **more) == changes


@BOTH
@pytest.mark.parametrize("in_s", [1800, 9 * HOUR])
@pytest.mark.parametrize("left_s", [24 * HOUR, 3000.0, 600.0])
def test_what_is_set_is_not_set_again(settings: Settings, in_s: float, left_s: float) -> None:
    by = claims(reserved(in_s))
    for _, end_s in kept(running(60, left_s), by=by, settings=settings):
        assert isinstance(end_s, float)
        assert kept(running(60, end_s), by=by, settings=settings) == []
