from __future__ import annotations

from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import EndAt
from bftrainer_slurm.controller.decide.available import keep_limits, limits_at_start
from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import Configuration, Element, Queue, Reservation, TimeLimit, WaitingJob
from tests.controller.worlds import NOW_S, cases, element, named, trainer, view_of

OPERATOR = Settings(operator=True)
OWNER = Settings(operator=False)
BOTH = pytest.mark.parametrize("settings", [OPERATOR, OWNER], ids=["operator", "owner"])
MINUTE, HOUR = 60.0, 3600.0
NEAR = "near its time limit"
RESERVED = "its node is reserved (course)"


def claims(
    *reservations: Reservation, waiting: tuple[WaitingJob, ...] = (), minutes: int | None = None
) -> Snapshot:
    queue = Queue((), waiting, frozenset())
    configuration = Configuration(partition_minutes=minutes)
    return Snapshot(NOW_S, NodeTable(), queue, reservations, configuration)


def reserved(in_s: float, for_s: float = HOUR, node: str = "n1") -> Reservation:
    return Reservation("course", NOW_S + in_s, NOW_S + in_s + for_s, (node,))


def wanted(in_s: float | None, node: str = "n1") -> Snapshot:
    return claims(waiting=(job(in_s, node),))


def job(in_s: float | None, node: str = "n1") -> WaitingJob:
    """A job that Slurm expects to start there then, or does not say when."""
    return WaitingJob(7, "main", 1, None if in_s is None else NOW_S + in_s, (node,))


def running(ran_s: float, left_s: float | None, task: int = 1, node: str = "n1") -> Element:
    """An element; no time left is no limit."""
    times = {} if left_s is None else {"limit_end_s": NOW_S + left_s}
    return element(task, "running", node, start_s=NOW_S - ran_s, **times)


def kept(
    *elements: Element, settings: Settings, user: int | None = None, by: Snapshot | None = None
) -> list[tuple[tuple[int, ...], float | str]]:
    """Which tasks are to end then (seconds from now), or to leave at once, and why."""
    mine = view_of(trainer(*elements, minutes=user))
    return [
        (
            tuple(id_.task for id_ in action.elements),
            action.end_s - NOW_S if isinstance(action, EndAt) else action.why,
        )
        for action in keep_limits(mine, by or claims(), settings)
    ]


@pytest.mark.parametrize(
    ("by", "user", "operator", "owner"),
    [
        pytest.param(claims(), None, (60, 10), (60, 60), id="an hour"),
        pytest.param(claims(), 1440, (60, 10), (60, 60), id="an hour of a day"),
        pytest.param(claims(), 5, (5, 5), (5, 5), id="what its user asked for"),
        pytest.param(claims(minutes=30), None, (30, 10), (30, 30), id="what the partition allows"),
        pytest.param(wanted(42 * MINUTE), None, (60, 10), (60, 40), id="a hole before a job"),
        pytest.param(wanted(5 * MINUTE), None, (60, 3), (60, 3), id="a short hole"),
        pytest.param(wanted(90), None, (60, 1), (60, 1), id="the shortest hole"),
        pytest.param(wanted(9 * HOUR), None, (60, 10), (60, 60), id="a long hole"),
        pytest.param(wanted(MINUTE, "n2"), None, (60, 10), (60, 60), id="another node's hole"),
        pytest.param(wanted(None), None, (60, 10), (60, 10), id="a job without a forecast"),
        pytest.param(
            claims(waiting=(job(42 * MINUTE), job(None))),
            None,
            (60, 10),
            (60, 40),
            id="one beside it",
        ),
        pytest.param(claims(reserved(1860)), None, (30, 10), (30, 30), id="up to a reservation"),
        pytest.param(claims(reserved(9 * HOUR)), None, (60, 10), (60, 60), id="one far ahead"),
        pytest.param(claims(reserved(110)), None, None, None, id="one too soon"),
        pytest.param(claims(reserved(-60)), None, None, None, id="one that is active"),
        pytest.param(claims(reserved(-HOUR, 60)), None, (60, 10), (60, 60), id="one that is over"),
        pytest.param(
            claims(reserved(60, node="n2")), None, (60, 10), (60, 60), id="of another node"
        ),
        pytest.param(
            claims(reserved(2 * HOUR), reserved(1860)), None, (30, 10), (30, 30), id="the first"
        ),
    ],
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
Kept = list[tuple[tuple[int, ...], float | str]]


@cases(
    "who, elements, more, changes",
    far_from_its_limit=("both", [running(0, HOUR)], {}, []),
    ending=("owner", [ENDING], {}, []),
    more_than_half_an_hour_left=("operator", [running(1799, 1801)], {}, []),
    lengthened_to_an_hour=("operator", [running(1801, 1799)], {}, [((1,), HOUR)]),
    in_one_request=(
        *("operator", [running(600, 3000), running(1900, 1700, 2, "n2")], {}, [((1, 2), HOUR)]),
    ),
    an_owners_with_time_left=("owner", [running(3000, 100)], {}, []),
    an_owners_near_its_limit=("owner", [running(3580, 29)], {}, [((1,), NEAR)]),
    every_second_one_of_those_that_began_together=(
        *("owner", [running(3480, 120, 0), running(3480, 120, 1, "n2")], {}, [((0,), NEAR)]),
    ),
    begun_before_the_clock_was_set_back=(
        *("owner", [running(-2 * HOUR, 29, 0)], {}, [((0,), NEAR)]),
    ),
    begun_then_as_a_second_one=("owner", [running(-2 * HOUR, 29)], {}, [((1,), NEAR)]),
    up_to_the_users_own_limit=("operator", [running(40, 20)], {"user": 5}, [((1,), 260)]),
    never_past_it=("operator", [running(280, 20)], {"user": 5}, [((1,), NEAR)]),
    none_where_one_can_have_no_more=(
        "operator", [running(600, 1140), running(600, 3000, 2, "n2")],
        {"by": claims(reserved(1200))}, [],
    ),
    more_than_an_hour_is_shortened=(
        *("both", [running(60, 24 * HOUR)], {"user": 1440}, [((1,), HOUR)]),
    ),
    reserved_elsewhere_or_in_the_past=("both", [running(600, 3000)], ELSEWHERE, []),
)  # fmt: skip
def test_limits_are_kept_of_those(
    who: str, elements: list[Element], more: dict[str, Any], changes: Kept
) -> None:
    for name, settings in (("operator", OPERATOR), ("owner", OWNER)):
        if who in (name, "both"):
            assert kept(*elements, settings=settings, **more) == changes


@BOTH
def test_no_limit_reaches_past_a_reservation(settings: Settings) -> None:
    """One made with IGNORE_JOBS, or Slurm would not have made it."""
    by = claims(reserved(1800))
    assert kept(running(60, 1800), by=by, settings=settings) == [((1,), 1740)]
    assert kept(running(60, 1740), by=by, settings=settings) == []


@BOTH
@pytest.mark.parametrize("in_s", [89, 0, -60])
@pytest.mark.parametrize("left_s", [3000.0, None])
def test_an_element_leaves_a_node_before_its_reservation(
    settings: Settings, in_s: float, left_s: float | None
) -> None:
    by = claims(reserved(in_s))
    assert kept(running(600, left_s), by=by, settings=settings) == [((1,), RESERVED)]


@BOTH
@pytest.mark.parametrize("in_s", [1800, 9 * HOUR])
@pytest.mark.parametrize("left_s", [24 * HOUR, 3000.0, 600.0])
def test_what_is_set_is_not_set_again(settings: Settings, in_s: float, left_s: float) -> None:
    by = claims(reserved(in_s))
    for _, end_s in kept(running(60, left_s), by=by, settings=settings):
        assert isinstance(end_s, float)
        assert kept(running(60, end_s), by=by, settings=settings) == []
