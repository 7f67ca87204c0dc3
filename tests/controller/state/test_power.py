"""Which nodes Slurm may switch off, and for how long trainers may keep them from that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.power import PowerSaving
from bftrainer_slurm.controller.state.registry import TrainerErrors, TrainerRegistry
from bftrainer_slurm.model import Configuration
from tests.controller.worlds import NOW_S, named, snapshot

SUSPEND_S = 600.0
BOTH, N1, NONE = named("n1 n2"), named("n1"), named("")
SINCE = dict.fromkeys(BOTH, NOW_S)  # the last ordinary job has left both


def seen(after_s: float = 0.0, busy_s: float | None = None) -> Snapshot:
    told = {} if busy_s is None else dict.fromkeys(BOTH, busy_s)
    conf = Configuration(suspend_s=dict.fromkeys(BOTH, SUSPEND_S), busy_s=told)
    return replace(snapshot("n1 n2"), time_s=NOW_S + after_s, configuration=conf)


def going_off(
    *looks: tuple[Snapshot, frozenset[str]], keep_awake_s: float = 0.0
) -> tuple[set[str], set[str]]:
    power = PowerSaving()
    for one, idle in looks:
        power.look(one, idle)
    soon, now = power.going_off(looks[-1][0], SINCE, keep_awake_s)
    return set(soon), set(now)


def test_a_node_that_a_job_has_just_left_may_be_used() -> None:
    assert going_off((seen(), BOTH), (seen(15), NONE)) == (set(), set())


def test_no_element_is_sent_to_a_node_in_the_last_minute_before_slurm_may_switch_it_off() -> None:
    assert going_off((seen(), BOTH), (seen(539), NONE)) == (set(), set())
    assert going_off((seen(), BOTH), (seen(541), NONE)) == (BOTH, set())


def test_slurm_knows_when_nodes_were_busy_before_the_first_look() -> None:
    assert going_off((seen(busy_s=NOW_S - 500), NONE)) == (set(), set())
    assert going_off((seen(busy_s=NOW_S - 550), NONE)) == (BOTH, set())


def test_a_node_of_which_nobody_knows_when_it_was_busy_may_be_switched_off_at_once() -> None:
    assert going_off((seen(), NONE)) == (BOTH, set())


def test_a_job_that_no_look_has_seen_counts_from_its_end() -> None:
    last = seen(700)
    ended = replace(last, queue=replace(last.queue, ordinary_ends=(("n[1,7]", NOW_S + 650),)))
    assert going_off((seen(), BOTH), (last, NONE)) == (BOTH, BOTH)
    assert going_off((seen(), BOTH), (ended, NONE)) == ({"n2"}, {"n2"})


def test_elements_leave_when_slurm_would_have_switched_their_nodes_off_without_them() -> None:
    used = (seen(), BOTH), (seen(599), N1)
    assert going_off(*used) == (BOTH, set())
    assert going_off(*used, (seen(600), N1)) == (BOTH, BOTH)


def test_a_site_may_allow_them_more_time_for_a_node_that_they_use() -> None:
    used = (seen(), BOTH), (seen(3600), N1)
    assert going_off(*used, keep_awake_s=86_400) == ({"n2"}, set())
    last = seen(600 + 86_400)
    assert going_off(*used, (last, N1), keep_awake_s=86_400) == (BOTH, BOTH)


@pytest.mark.parametrize("wake_nodes", [False, True])
def test_a_site_that_lets_trainers_wake_nodes_lets_them_keep_them(wake_nodes: bool) -> None:
    history, settings = History(":memory:"), Settings(wake_nodes=wake_nodes)
    registry = TrainerRegistry(history, settings, TrainerErrors(), 0.0)
    state, last = ClusterState(history), replace(seen(9999), settings=settings)
    for one in (replace(seen(), settings=settings), last):
        state.look(one, (), (), one.time_s)
    found = state.view(last, registry)
    assert (found.soon_off == found.let_off == BOTH) is not wake_nodes
    assert (found.soon_off == found.let_off == NONE) is wake_nodes


def test_where_slurm_switches_nothing_off_nothing_changes() -> None:
    plain = replace(seen(9999), configuration=Configuration())
    assert going_off((plain, NONE)) == (set(), set())
