"""Which nodes Slurm may switch off, and for how long trainers may keep them from that."""

from __future__ import annotations

from dataclasses import replace

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.power import PowerSaving
from bftrainer_slurm.model import Configuration
from tests.controller.worlds import NOW_S, cases, named, snapshot

SUSPEND_S = 600.0
BOTH, N1, NONE = named("n1 n2"), named("n1"), named("")
SINCE = dict.fromkeys(BOTH, NOW_S)  # the last ordinary job has left both


def seen(after_s: float = 0.0, busy_s: float | None = None) -> Snapshot:
    told = {} if busy_s is None else dict.fromkeys(BOTH, busy_s)
    conf = Configuration(suspend_s=dict.fromkeys(BOTH, SUSPEND_S), busy_s=told)
    return replace(snapshot("n1 n2"), time_s=NOW_S + after_s, configuration=conf)


USED = (seen(), BOTH), (seen(599), N1)
LAST = seen(700)
ENDED = replace(LAST, queue=replace(LAST.queue, ordinary_ends=(("n[1,7]", NOW_S + 650),)))
OFF_NOWHERE = replace(seen(9999), configuration=Configuration())


@cases(
    "looks, keep_awake_s, soon, now",
    none_that_a_job_has_just_left=([(seen(), BOTH), (seen(15), NONE)], 0, "", ""),
    none_up_to_a_minute_before_slurm_may=([(seen(), BOTH), (seen(539), NONE)], 0, "", ""),
    soon_in_the_last_minute=([(seen(), BOTH), (seen(541), NONE)], 0, "n1 n2", ""),
    none_that_slurm_knows_to_have_been_busy=([(seen(busy_s=NOW_S - 500), NONE)], 0, "", ""),
    soon_the_minute_after=([(seen(busy_s=NOW_S - 550), NONE)], 0, "n1 n2", ""),
    soon_one_of_which_nobody_knows=([(seen(), NONE)], 0, "n1 n2", ""),
    now_after_a_while_without_a_job=([(seen(), BOTH), (LAST, NONE)], 0, "n1 n2", "n1 n2"),
    not_where_a_job_has_ended_since=([(seen(), BOTH), (ENDED, NONE)], 0, "n2", "n2"),
    soon_where_elements_are=(USED, 0, "n1 n2", ""),
    now_where_slurm_would_have_without_them=([*USED, (seen(600), N1)], 0, "n1 n2", "n1 n2"),
    not_while_the_site_allows_them_more=([USED[0], (seen(3600), N1)], 86_400, "n2", ""),
    then_it_is=([USED[0], (seen(3600), N1), (seen(87_000), N1)], 86_400, "n1 n2", "n1 n2"),
    none_where_slurm_switches_nothing_off=([(OFF_NOWHERE, NONE)], 0, "", ""),
)
def test_slurm_may_switch_off(
    looks: list[tuple[Snapshot, frozenset[str]]], keep_awake_s: float, soon: str, now: str
) -> None:
    power = PowerSaving()
    for one, idle in looks:
        power.look(one, idle)
    assert power.going_off(looks[-1][0], SINCE, keep_awake_s) == (named(soon), named(now))
