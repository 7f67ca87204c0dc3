"""Holes as the loop sees them: when they began, how long they last, how far ahead to plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import Holes, Spans
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.model import NodeState, OrdinaryRun, Reservation, WaitingJob
from tests.controller.worlds import NOW_S, element, node, snapshot, trainer

NODES = tuple(node(name) for name in ("n1", "n2", "n3", "n4"))


def seen(after_s: float, *busy: str, **changes: object) -> Snapshot:
    plain = snapshot(NODES, ordinary_nodes=frozenset(busy))
    return replace(plain, time_s=NOW_S + after_s, **changes)  # type: ignore[arg-type]


def watching(*snapshots: Snapshot, history: History | None = None) -> Holes:
    holes = Holes(history or History(":memory:"))
    for one in snapshots:
        holes.update(one)
    return holes


def test_what_is_not_taken_is_in_a_hole() -> None:
    last = seen(15, "n2")
    assert watching(seen(0), last).life_s(last).keys() == {"n1", "n3", "n4"}


@pytest.mark.parametrize(
    "other", [node("n1", NodeState.UNAVAILABLE), node("n1", partition="other")]
)
def test_a_node_that_is_not_ours_to_use_is_in_none(other: object) -> None:
    last = replace(seen(0), nodes=NodeTable((other,)))  # type: ignore[arg-type]
    assert watching(last).life_s(last) == {}


def test_holes_go_into_the_history_when_they_begin_and_end() -> None:
    history = History(":memory:")
    watching(seen(0, "n1", "n2", "n3"), seen(15, "n1", "n2"), seen(30, "n1", "n2", "n3", "n4"),
             history=history)  # fmt: skip
    assert Spans(history, "holes").open() == {}
    watching(seen(45, "n2", "n3", "n4"), history=history)
    assert Spans(history, "holes").open() == {"n1": NOW_S + 45}


def test_a_hole_that_lasts_over_a_restart_keeps_its_age() -> None:
    history = History(":memory:")
    watching(seen(0), history=history)
    watching(seen(500, "n1"), history=history)
    assert Spans(history, "holes").open() == dict.fromkeys(("n2", "n3", "n4"), NOW_S)


def test_a_hole_that_nobody_has_watched_ends_when_a_job_began_or_when_it_was_last_seen() -> None:
    history = History(":memory:")
    watching(seen(0, "n5"), history=history)
    history.write(put("watches", NOW_S - 60, NOW_S + 30))
    ours = trainer(
        element(0, "running n3", start_s=NOW_S + 20), element(1, "running n4", start_s=NOW_S + 900)
    )
    back = seen(3600, "n1", "n2")
    runs = (OrdinaryRun(("n1",), NOW_S + 600), OrdinaryRun(("n2",), NOW_S - 600))
    queue = replace(back.queue, trainers=(ours,), ordinary_runs=runs)
    watching(replace(back, queue=queue), history=history)
    assert history.read(
        "SELECT node, start_s - ?1, end_s - ?1 FROM holes ORDER BY 1, 2", NOW_S
    ) == [
        ("n1", 0, 600),  # as Slurm says
        ("n2", 0, 30),  # it knows nothing of the job that took it
        ("n3", 0, None),  # an element had it all the time
        ("n4", 0, 30),
        ("n4", 3600, None),
    ]


def test_nodes_that_are_always_taken_first_are_expected_to_go_first() -> None:
    looks = [seen(100.0 * turn, *(["n1"] if turn % 2 else [])) for turn in range(30)]
    life_s = watching(*looks).life_s(looks[-1])
    assert life_s["n2"] < life_s["n4"]


def test_what_slurm_announces_counts_where_it_is_sooner() -> None:
    job = WaitingJob(7, "batch", 1, NOW_S + 50, ("n1",))
    plain = seen(0)
    last = replace(
        plain,
        queue=replace(plain.queue, waiting=(job,)),
        reservations=(Reservation("maintenance", NOW_S + 90, NOW_S + 900, ("n1", "n2")),),
    )
    life_s = watching(last).life_s(last)
    assert (life_s["n1"], life_s["n2"]) == (50, 90)
    assert life_s["n3"] > 90


def test_the_forward_time_adapts_to_how_often_the_pool_changes() -> None:
    looks = [seen(20.0 * turn, *(["n1"] if turn % 8 < 4 else [])) for turn in range(160)]
    assert watching(*looks).forward_time_s(Settings()) == pytest.approx(80)


def test_times_without_any_hole_do_not_count_for_it() -> None:
    everything = ("n1", "n2", "n3", "n4")
    looks = []
    for turn in range(20):
        looks += [seen(5000.0 * turn, *everything), seen(5000.0 * turn + 4850)]
    assert watching(*looks).forward_time_s(Settings()) < 100


def test_an_admin_can_fix_the_forward_time() -> None:
    settings = Settings(forward_time_s=33.0)
    looks = [seen(200.0 * turn, *(["n1"] if turn % 2 else [])) for turn in range(40)]
    assert watching(*looks).forward_time_s(settings) == 33.0


def test_before_anything_has_changed_plans_look_two_minutes_ahead() -> None:
    assert watching(seen(0)).forward_time_s(Settings()) == 120.0


def test_a_clock_that_is_set_back_leaves_expectations_that_can_be() -> None:
    looks = [seen(60.0 * turn) for turn in range(20)]
    later = [seen(1200 - 7200.0, "n4"), seen(1260 - 7200.0, "n3", "n4")]
    holes = watching(*looks, *later)
    assert all(life_s >= 0 for life_s in holes.life_s(later[-1]).values())
    assert all(since_s <= later[-1].time_s for since_s in holes.since_s.values())
