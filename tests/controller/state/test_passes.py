"""What the passes of Slurm's backfill scheduler tell: which jobs fit no idle nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.passes import Fit, Passes
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    Memory,
    NodeState,
    Part,
    WaitingJob,
)
from tests.controller.worlds import NOW_S, cases, named, node, snapshot

ALL, THREE, FEW = named("n1 n2 n3 n4"), named("n1 n2 n3"), named("n1")
NODES = tuple(node(name, partition="main") for name in sorted(ALL))
JOB = WaitingJob(7, "main", 2, submit_s=20.0)
SHORTER, LIMITED = replace(JOB, minutes=5), replace(JOB, for_nodes=False)
NEWER, NEWEST = replace(JOB, submit_s=39.0), replace(JOB, submit_s=41.0)
ANOTHER = WaitingJob(8, "main", 1)
LARGE = WaitingJob(5, "main", 9, priority=JOB.priority + 1)
BEHIND = replace(LARGE, priority=JOB.priority - 1)
TEN = tuple(replace(JOB, job_id=number, priority=-number) for number in range(10, 20))
NINE = "11 12 13 14 15 16 17 18 19"

Look = tuple[Snapshot, frozenset[str]]  # what Slurm says, and the nodes that are idle


def at(
    began_s: float | None,
    pool: frozenset[str] = ALL,
    *jobs: WaitingJob,
    active: bool = False,
    time_s: float | None = None,
    **more: object,
) -> Look:
    """A look 11 s after a pass began, if at no other time."""
    last = None if began_s is None else BackfillPass(began_s, active)
    plain = snapshot(NODES, waiting=jobs or (JOB,))
    plain = replace(
        plain, time_s=time_s or (began_s or 0.0) + 11, settings=Settings(partition="main")
    )
    about = {"last_pass": last, "configuration": Configuration(backfill_s=30.0)}
    return replace(plain, **(about | more)), pool  # type: ignore[arg-type]


def watched(*looks: Look) -> Passes:
    """After looks where trainers have the other nodes, that jobs may have too."""
    passes = Passes()
    for one, idle in looks:
        passes.look(one, {name: one.room[name] for name in idle}, one.time_s)
    return passes


def left(*looks: Look) -> set[int]:
    return set(watched(*looks).forecast(30.0, NOW_S).left)


JUDGED = [at(10, THREE), at(40, THREE)]
TRIED = [at(10, named("n1 n2"), *TEN), at(40, named("n1 n2"), *TEN), at(40, THREE, *TEN)]


@cases(
    "looks, jobs",
    one_that_a_pass_left_waiting_beside_enough=([at(10), at(40)], "7"),
    also_where_there_are_few_later=([at(10), at(40), at(70, FEW)], "7"),
    for_a_new_controller_one_that_was_there_before_the_last_pass=([at(40, ALL, NEWER)], "7"),
    not_one_that_came_after_it=([at(40, ALL, NEWEST)], ""),
    not_before_the_pass_is_over=([at(10), at(40, active=True)], ""),
    but_then=([at(10), at(40, active=True), at(40)], "7"),
    not_where_few_were_there_before_the_pass=([at(10, FEW), at(40)], ""),
    not_where_few_were_there_after_it=([at(10), at(40, FEW)], ""),
    not_beside_those_freed_after_one_heard_of_late=([at(10, FEW), at(10, time_s=48), at(40)], ""),
    beside_others_however_late_it_is_heard_of=([at(10), at(10, time_s=48), at(40)], "7"),
    not_where_the_pass_may_have_begun_before_the_job_came=([at(10, ALL, ANOTHER), at(40)], ""),
    not_one_that_has_changed_it_is_another=([at(10), at(40), at(40, ALL, SHORTER)], ""),
    not_one_that_waits_for_something_else=([at(10, ALL, LIMITED), at(40, ALL, LIMITED)], ""),
    one_that_has_a_limit_in_between=([at(10), at(40), at(40, ALL, LIMITED), at(40)], "7"),
    until_more_nodes_are_in_holes_than_any_pass_had=([*JUDGED, at(40)], ""),
    and_again_after_the_next_pass=([*JUDGED, at(40), at(70)], "7"),
    until_a_larger_one_is_gone=([at(10, ALL, JOB, LARGE), at(40, ALL, JOB, LARGE), at(40)], ""),
    not_one_behind_it=([at(10, ALL, JOB, BEHIND), at(40, ALL, JOB, BEHIND), at(40)], "7"),
    # Most of them wait for something else, and trainers would leave all nodes for nothing.
    of_many_all_but_the_first_one=(
        [at(10, THREE, *TEN), at(40, THREE, *TEN), at(40, ALL, *TEN)], NINE
    ),
    also_after_the_next_pass=([*TRIED, at(70, THREE, *TEN), at(70, ALL, *TEN)], NINE),
    all_but_two_where_the_first_one_has_started=(
        [*TRIED, at(70, THREE, *TEN[1:]), at(70, ALL, *TEN[1:])], "13 14 15 16 17 18 19"
    ),
)  # fmt: skip
def test_no_idle_nodes_fit(looks: list[Look], jobs: str) -> None:
    assert left(*looks) == set(map(int, jobs.split()))


def test_nodes_that_may_have_been_freed_while_slurm_was_asked_are_not_counted() -> None:
    passes = watched(at(10, FEW))
    for (one, idle), answered_s in ((at(10, time_s=39), 41.0), (at(40), 51.0)):
        passes.look(one, {name: one.room[name] for name in idle}, answered_s)
    assert not passes.forecast(30.0, NOW_S).left


def test_nodes_that_slurm_could_have_woken_for_a_job_count_as_idle() -> None:
    state = ClusterState(History(":memory:"))
    off = NodeState.POWERED_DOWN
    asleep = NodeTable(node(name, off, "main bftrainer") for name in sorted(ALL))
    for began_s in (10, 40):
        now, _ = at(began_s, nodes=asleep, settings=Settings())
        state.look(now, (), (), now.time_s)
    assert state.forecast(now, NOW_S).left == {7}


@cases(
    "looks, now_s, due_s, sure_s",
    an_interval_after_the_last_one_began=([at(1000)], 1001, 1030, 1030),
    as_ever_where_nobody_looks=([at(1000)], 1040, 1060, 1030),
    later_after_one_that_takes_long=([at(955), at(1000)], 1001, 1044, 1030),
    as_it_is_known_before_which_the_clock_was_set_back=([at(7211, time_s=11), at(40)], 51, 70, 70),
)
def test_the_next_pass_is_due(looks: list[Look], now_s: float, due_s: float, sure_s: float) -> None:
    found = watched(*looks).forecast(30.0, now_s)
    assert (found.due_s, found.sure_s) == (due_s, sure_s)


@cases(
    "look, interval_s",
    as_none_was=(at(None), 30.0),
    as_the_last_one_is_long_ago=(at(NOW_S - 3600), 30.0),
    as_slurm_has_no_backfill=(at(NOW_S), None),
    as_they_come_all_the_time=(at(NOW_S), 2.0),
    as_the_clock_was_set_back_since=(at(NOW_S + 7200, time_s=NOW_S), 30.0),
)
def test_a_pass_may_come_at_any_moment(look: Look, interval_s: float | None) -> None:
    assert watched(look).forecast(interval_s, NOW_S).due_s == -math.inf


def test_then_it_comes_within_an_interval_of_the_last_job_that_came() -> None:
    new = replace(JOB, job_id=8, submit_s=NOW_S)
    found = watched(at(None, ALL, JOB, new)).forecast(30.0, NOW_S + 1)
    assert NOW_S + 30 < found.until_s < NOW_S + 35


@pytest.mark.parametrize("interval_s", [2.0, None])
def test_where_passes_tell_nothing_a_new_job_is_the_main_schedulers_for_one_look(
    interval_s: float | None,
) -> None:
    new = replace(JOB, job_id=8)
    looks = [at(None), at(None, ALL, JOB, new, time_s=NOW_S)]
    found = watched(*looks).forecast(interval_s, NOW_S)
    assert found.left == {8}
    assert NOW_S < found.until_s < NOW_S + 5  # there is another look soon
    looks.append(at(None, ALL, JOB, new, time_s=NOW_S + 4))
    assert not watched(*looks).forecast(interval_s, NOW_S + 4).left


@cases(
    "looks, asks",
    it_may_start_a_job=([at(10)], True),
    not_where_too_few_are_idle=([at(10, FEW)], False),
    not_where_it_was_judged=([at(10), at(40)], False),
    not_where_it_waits_for_something_else=([at(10, ALL, LIMITED)], False),
)
def test_the_next_pass_is_asked_for_while(looks: list[Look], asks: bool) -> None:
    assert watched(*looks).forecast(30.0, 60.0).asks is asks


GPUS = {"n1": Part(2, 9), "n2": Part(1, 9)}  # free: two GPUs of n1, one of n2
CPUS = {"n1": Part(0, 4), "n2": Part(0, 1)}
LESS = GPUS | {"n1": Part(1, 9)}
JUST = {"n1": Part(0, 2, 1000)}
WANTS = replace(JOB, nodes=1, cpus=2, memory=Memory(cpu_mb=500.0))


def asking(gpus: int, cpus: int = 0) -> WaitingJob:
    return replace(JOB, nodes=1, gpus=gpus, cpus=cpus)


@cases(
    "job, looks, fits",
    beside_enough_gpus_of_a_node=(asking(2), [GPUS, GPUS], False),
    not_beside_too_few=(asking(3), [GPUS, GPUS], True),
    not_beside_those_that_are_free_only_since_then=(asking(2), [LESS, GPUS], True),
    also_where_another_has_fewer=(asking(2), [GPUS, GPUS, GPUS | {"n3": Part(1, 9)}], False),
    not_where_more_nodes_have_as_many=(asking(2), [GPUS, GPUS, GPUS | {"n2": Part(2, 9)}], True),
    beside_enough_processors=(asking(0, 4), [CPUS, CPUS], False),
    not_beside_too_few_of_them=(asking(0, 5), [CPUS, CPUS], True),
    # Else trainers would not leave for it once ordinary jobs have left the memory.
    beside_enough_memory=(WANTS, [JUST, JUST], False),
    not_beside_too_little=(WANTS, [{"n1": Part(0, 2, 999)}] * 2, True),
)
def test_a_job_that_a_pass_left_waiting_does_not_fit(
    job: WaitingJob, looks: Iterable[Mapping[str, Part]], fits: bool
) -> None:
    found = list[Look]()
    for began_s, parts in zip((10, 40, 40.5), looks, strict=False):
        about = {
            "shared": {name: SharedNode(8, part, part) for name, part in parts.items()},
            "configuration": Configuration(backfill_s=30.0, counts_memory=True),
            "last_pass": BackfillPass(min(began_s, 40), active=False),
        }
        found.append(at(began_s, frozenset(parts), job, **about))
    assert left(*found) == (set() if fits else {7})


def test_a_node_fits_by_partition_features_and_what_the_user_excludes() -> None:
    fast = replace(node("n1", partition="main"), features=frozenset({"fast"}), weight=9)
    nodes = (fast, node("n2", partition="main"), node("n3", partition="other"))
    nodes_for = Fit(snapshot(nodes), dict.fromkeys(THREE, Part(1, 1))).nodes_for
    assert nodes_for(JOB) == ("n2", "n1"), "as Slurm takes them by weight"
    assert nodes_for(replace(JOB, partition="main,other")) == ("n2", "n3", "n1")
    assert nodes_for(replace(JOB, constraint="fast")) == ("n1",)
    assert nodes_for(replace(JOB, constraint="[rack1|rack2]")) == ("n2", "n1"), "of several nodes"
    assert nodes_for(replace(JOB, excluded=frozenset({"n1"}))) == ("n2",)
