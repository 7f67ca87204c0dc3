"""Holes, nodes out of service, and ordinary jobs, from one look to the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState, Holes, Inventory, Spans
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.phases import Ended
from bftrainer_slurm.controller.state.registry import TrainerErrors, TrainerRegistry
from bftrainer_slurm.model import (
    Configuration,
    ElementId,
    Node,
    NodeState,
    OrdinaryRun,
    Queue,
    Reservation,
    WaitingJob,
)
from tests.controller.worlds import NOW_S, cases, element, named, node, snapshot, trainer

NAMES = ("n1", "n2", "n3", "n4")
NODES = NodeTable(node(name) for name in NAMES)
BOTH = NodeTable((node("n1"), node("n2")))
N2_DOWN = (node("n1"), node("n2", NodeState.UNAVAILABLE))
DRAINS_AND_BUSY = (node("n1", NodeState.DRAINING), node("n2", NodeState.BUSY))


def seen(after_s: float, *busy: str, nodes: Sequence[Node] = NODES, **changes: Any) -> Snapshot:
    plain = snapshot(nodes, ordinary_nodes=frozenset(busy))
    return replace(plain, time_s=NOW_S + after_s, **changes)


@pytest.fixture
def history() -> History:
    return History(":memory:")


def watching(*snapshots: Snapshot, history: History | None = None) -> Holes:
    """One controller's life."""
    holes = Holes(history or History(":memory:"))
    for one in snapshots:
        holes.update(one)
    return holes


def listing(history: History, *looks: tuple[float, Sequence[Node]]) -> None:
    """One controller's life."""
    inventory = Inventory(history)
    for after_s, nodes in looks:
        inventory.update(seen(after_s, nodes=nodes))


def rows(history: History, table: str) -> list[tuple[Any, ...]]:
    """A table's rows, with times from NOW_S on."""
    found = history.read(f"SELECT * FROM {table}")
    return sorted(tuple(v - NOW_S if isinstance(v, float) else v for v in row) for row in found)


def test_what_is_not_taken_and_ours_to_use_is_in_a_hole() -> None:
    others = node("n5", NodeState.UNAVAILABLE), node("n6", partition="other")
    last = seen(15, "n2", nodes=NodeTable((*NODES, *others)))
    assert watching(seen(0), last).life_s(last).keys() == {"n1", "n3", "n4"}


def test_holes_go_into_the_history_when_they_begin_and_end_and_keep_their_age(
    history: History,
) -> None:
    for one in (seen(0, "n1", "n2"), seen(500, "n1", "n2", "n3"), seen(600, "n2", "n3")):
        watching(one, history=history)  # a controller that has just started
    assert Spans(history, "holes").open() == {"n1": NOW_S + 600, "n4": NOW_S}


def test_a_hole_that_nobody_has_watched_ends_when_a_job_began_or_when_it_was_last_seen(
    history: History,
) -> None:
    watching(seen(0, "n5"), history=history)
    history.write(put("watches", NOW_S - 60, NOW_S + 30))
    ours = trainer(
        element(0, "running n3", start_s=NOW_S + 20), element(1, "running n4", start_s=NOW_S + 900)
    )
    back = seen(3600, "n1", "n2")
    runs = (OrdinaryRun(("n1",), NOW_S + 600), OrdinaryRun(("n2",), NOW_S - 600))
    queue = replace(back.queue, trainers=(ours,), ordinary_runs=runs)
    watching(replace(back, queue=queue), history=history)
    assert rows(history, "holes WHERE end_s IS NOT NULL") == [
        ("n1", 0, 600),  # as Slurm says
        ("n2", 0, 30),  # it knows nothing of the job that took it
        ("n4", 0, 30),
    ]
    # An element had n3 all the time.
    assert Spans(history, "holes").open() == {"n3": NOW_S, "n4": NOW_S + 3600}


def test_what_slurm_announces_counts_where_it_is_sooner() -> None:
    job = WaitingJob(7, "batch", 1, NOW_S + 50, ("n1",))
    reserved = Reservation("maintenance", NOW_S + 90, NOW_S + 900, ("n1", "n2"))
    last = replace(snapshot(NODES, waiting=(job,)), reservations=(reserved,))
    life_s = watching(last).life_s(last)
    assert (life_s["n1"], life_s["n2"]) == (50, 90)
    assert life_s["n3"] > 90


EACH_80_S = [seen(20.0 * turn, *(["n1"] if turn % 8 < 4 else [])) for turn in range(160)]


@cases(
    "looks, settings, least_s, most_s",
    two_minutes_before_anything_has_changed=([seen(0)], Settings(), 120, 120),
    as_far_as_the_pool_stays_the_same=(EACH_80_S, Settings(), 79, 81),
    not_counting_times_without_any_hole=(
        [look for turn in range(20)
         for look in (seen(5000.0 * turn, *NAMES), seen(5000.0 * turn + 4850))],
        Settings(), 0, 100,
    ),
    as_far_as_an_admin_says=(EACH_80_S, Settings(forward_time_s=33.0), 33, 33),
)  # fmt: skip
def test_plans_look_ahead(
    looks: list[Snapshot], settings: Settings, least_s: float, most_s: float
) -> None:
    assert least_s <= watching(*looks).forward_time_s(settings) <= most_s


def test_a_clock_that_is_set_back_leaves_expectations_that_can_be() -> None:
    looks = [seen(60.0 * turn) for turn in range(20)]
    later = [seen(1200 - 7200.0, "n4"), seen(1260 - 7200.0, "n3", "n4")]
    holes = watching(*looks, *later)
    assert all(life_s >= 0 for life_s in holes.life_s(later[-1]).values())
    assert all(since_s <= later[-1].time_s for since_s in holes.since_s.values())


def test_the_partitions_nodes_are_known_as_they_come_and_go(history: History) -> None:
    listing(history, (0, (*BOTH, node("x1", partition="other"))))
    assert rows(history, "nodes") == [("n1",), ("n2",)]
    listing(history, (60, (BOTH[1], node("n3"))))
    assert rows(history, "nodes") == [("n2",), ("n3",)]


@cases(
    "lives, outages",
    until_the_node_is_back=([[BOTH, N2_DOWN, N2_DOWN, BOTH]], [("n2", 60, 180)]),
    of_one_that_drains_but_none_of_one_that_is_busy=([[DRAINS_AND_BUSY]], [("n1", 0, None)]),
    over_a_restart=([[N2_DOWN], [N2_DOWN, BOTH]], [("n2", 0, 120)]),
    until_the_node_is_gone=([[N2_DOWN, (node("n1"),)]], [("n2", 0, 60)]),
)
def test_an_outage_lasts(
    history: History, lives: list[list[tuple[Node, ...]]], outages: list[tuple[object, ...]]
) -> None:
    """There is a look each minute, also of the next controller."""
    minutes = itertools.count()
    for life in lives:
        listing(history, *((60.0 * next(minutes), nodes) for nodes in life))
    assert rows(history, "outages") == outages


@pytest.mark.parametrize(
    ("nodes", "since"), [(N2_DOWN, {"n2": NOW_S + 3600}), (BOTH, {})], ids=["it lasts", "it's back"]
)
def test_an_outage_that_nobody_has_watched_ends_when_it_was_last_seen(
    history: History, nodes: tuple[Node, ...], since: dict[str, float]
) -> None:
    listing(history, (0, N2_DOWN), (60, N2_DOWN))
    listing(history, (3600, nodes))
    assert rows(history, "outages WHERE end_s IS NOT NULL") == [("n2", 0, 60)]
    assert Spans(history, "outages").open() == since


def test_a_look_that_reads_no_nodes_writes_nothing_for_a_minute(history: History) -> None:
    listing(history, (0, BOTH), (15, BOTH), (45, BOTH))
    assert rows(history, "watches") == [(0, 0)]
    listing(history, (100, BOTH), (130, BOTH), (160, BOTH))
    assert rows(history, "watches")[-1] == (100, 160)


@pytest.mark.parametrize("away_s", [3600.0, -3600.0])
def test_after_a_long_time_without_a_look_another_watch_begins(
    history: History, away_s: float
) -> None:
    listing(history, (0, BOTH), (60, BOTH), (60 + away_s, BOTH))
    assert rows(history, "watches") == sorted([(0, 60), (60 + away_s, 60 + away_s)])


def test_what_is_older_than_90_days_is_dropped(history: History) -> None:
    later_s = 91 * 86_400
    looks = ((later_s + 60 * minute, BOTH) for minute in range(61))
    listing(history, (0, N2_DOWN), (60, BOTH), *looks)
    history.forget_old(NOW_S + later_s + 3600)
    assert rows(history, "outages") == []
    assert rows(history, "watches") == [(later_s, later_s + 3600)]
    assert rows(history, "nodes") == [("n1",), ("n2",)]


@pytest.mark.parametrize(
    ("took_s", "lead_s"), [([], 3.0), ([6.0] * 19 + [90.0], 7.0), ([600.0] * 19, 15.0)]
)
def test_trainers_leave_so_early_that_nine_in_ten_elements_have_ended_before_the_pass(
    took_s: list[float], lead_s: float, history: History
) -> None:
    state = ClusterState(history)
    ends = [Ended(ElementId(5, 0), "n9", NOW_S, "shrank", took_s=one) for one in took_s]
    state.look(seen(0), (), ends, NOW_S)
    assert state.lead_s == lead_s


@pytest.mark.parametrize(("wake_nodes", "off"), [(False, "n1 n2"), (True, "")])
def test_a_site_that_lets_trainers_wake_nodes_lets_them_keep_them(
    wake_nodes: bool, off: str, history: History
) -> None:
    settings = Settings(wake_nodes=wake_nodes)
    configuration = Configuration(suspend_s={"n1": 600.0, "n2": 600.0})
    registry = TrainerRegistry(history, settings, TrainerErrors(), 0.0)
    state, about = ClusterState(history), {"settings": settings, "configuration": configuration}
    for after_s in (0, 9999):
        now = seen(after_s, nodes=BOTH, **about)
        state.look(now, (), (), now.time_s)
    found = state.view(now, registry)
    assert found.soon_off == found.let_off == named(off)


def test_jobs_that_start_are_counted_once_and_those_of_before_the_first_look_never(
    history: History,
) -> None:
    felt, cluster = list[int](), ClusterState(history)
    for one in ({(1, 5.0)}, {(1, 5.0), (2, 6.0)}, {(2, 6.0)}, {(2, 9.0), (3, 8.0)}):
        queue = Queue((), (), frozenset(), ordinary_starts=frozenset(one))
        cluster.look(Snapshot(NOW_S, queue=queue), (), (), NOW_S)
        felt.append(history.ordinary(0.0))
    assert felt == [0, 1, 1, 3], "a job that is requeued starts again"


def test_the_next_jobs_ask_for_what_the_last_ones_had_one_of_each_size(history: History) -> None:
    cluster = ClusterState(history)
    sizes = [1] * 20 + [4] * 18 + [0] * 9 + [2]  # of these, one in 48 is too few
    asks = [WaitingJob(number, "main", 1, gpus=gpus, cpus=1) for number, gpus in enumerate(sizes)]
    asks += [WaitingJob(99, "main", 2, gpus=8), WaitingJob(98, "main", 1)]
    runs = tuple(OrdinaryRun(("n1",), NOW_S, 0.0, one.job_id, one.job_id, one) for one in asks)
    starts = frozenset((run.job_id, run.start_s) for run in runs)
    queue = Queue((), (), frozenset(), ordinary_runs=runs, ordinary_starts=starts)
    for _ in range(2):
        cluster.look(Snapshot(NOW_S, queue=queue), (), (), NOW_S)
        assert [job.gpus for job in cluster.next_jobs] == [1, 4]
