"""One reading of Slurm: what is read when, and what it says of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot, read
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    NodeState,
    Queue,
    Reservation,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.gateway import GatewayError
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.worlds import NOW_S, cases, node, trainer

JOB = WaitingJob(7, "main", 1)
MINE = trainer("running n1", "ending n2", "pending n3")
THEIRS = trainer("running n1", "ending n2", "pending n3", array=99)
LAST_PASS = BackfillPass(NOW_S - 10, active=False)
RESERVED = (Reservation("course", NOW_S, NOW_S + 60, ("n1",)),)


def site(*trainers: Trainer, nodes: str = "", **more: Any) -> MadeUpSlurm:
    """A Slurm with these trainers, in which an ordinary job has n9."""
    slurm = MadeUpSlurm(NOW_S, nodes.split(), ordinary={"n9"}, reserved=RESERVED, **more)
    slurm.passed = LAST_PASS
    slurm.enter_(*(trainers or (MINE,)))
    return slurm


def reading(
    slurm: MadeUpSlurm,
    last: Snapshot | None = None,
    *,
    now_s: float = NOW_S,
    due: str = "nodes reservations pass",
    mine: Callable[[Trainer], bool] = lambda _: True,
) -> Snapshot:
    return read(slurm, last or Snapshot(0.0), now_s, set(due.split()), mine)


def test_what_is_not_due_is_as_it_was() -> None:
    slurm = site(nodes="n1")
    first = reading(slurm)
    slurm.asked_.clear()
    second = reading(slurm, first, now_s=NOW_S + 15, due="")
    assert slurm.requests_ == ["queue"]
    assert (second.time_s, second.nodes) == (NOW_S + 15, first.nodes)
    assert second.reservations == RESERVED


def test_nodes_that_are_read_again_and_have_not_changed_are_the_same_table() -> None:
    first = reading(site(nodes="n1 n2"))
    assert reading(site(nodes="n1 n2"), first).nodes is first.nodes
    other = reading(site(nodes="n1 n3"), first)
    assert other.all_nodes == {"n1", "n3"}
    assert first.all_nodes == {"n1", "n2"}


def test_nodes_are_read_when_a_job_has_woken_one() -> None:
    table = NodeTable([node("n9", NodeState.POWERED_DOWN)])
    asleep = replace(reading(site(nodes="n1")), nodes=table)
    slurm = site(nodes="n1")
    assert reading(slurm, asleep, due="").powered_down == frozenset()
    assert slurm.requests_ == ["queue", "nodes"]
    slurm.asked_.clear()
    reading(slurm, replace(asleep, settings=Settings(wake_nodes=True)), due="")
    assert slurm.requests_ == ["queue"]


def unasked(**more: Any) -> MadeUpSlurm:
    """A Slurm that does not tell its configuration."""
    return site(fails={"configuration": GatewayError("exit status 1")}, **more)


@cases(
    "slurm, after_s, asked",
    not_after_a_moment=(site(), [15], 0),
    once_a_day=(site(), [86_400], 1),
    not_at_once_where_slurm_did_not_tell=(unasked(), [3600, 3630], 1),
    but_a_minute_later=(unasked(), [3600, 3661], 2),
)
def test_how_slurm_is_configured_is_asked(
    slurm: MadeUpSlurm, after_s: list[float], asked: int
) -> None:
    one = first = reading(site())
    for seconds in after_s:
        one = reading(slurm, one, now_s=NOW_S + seconds)
    assert slurm.requests_.count("configuration") == asked
    assert one.configuration == first.configuration


def test_before_it_has_said_any_of_it_nothing_is_taken_for_granted_and_each_look_asks() -> None:
    slurm = unasked()
    first = reading(slurm)
    assert first.configuration == Configuration(told=False)
    assert first.misfits[0].startswith("Slurm does not tell its configuration")
    assert reading(slurm, first, now_s=NOW_S + 1).configuration == slurm.configured


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"behind": ("debug",)}, "jobs in debug wait behind trainers: give each of these"),
        ({"grace_s": 20}, "bftrainer has GraceTime=20: set it to 0"),
        ({"preempts": False}, "ordinary jobs cannot preempt jobs in bftrainer, so no element"),
        ({"exempt_s": 300.0}, "ordinary jobs could not preempt an element for 300 s, so none"),
        ({"cancels": True}, "PreemptMode=CANCEL for bftrainer or its QOS: set it to REQUEUE"),
    ],
)
def test_a_setting_that_does_not_suit_trainers_is_warned_of_once_and_stays_in_the_status(
    settings: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    slurm = site(configured=Configuration(**settings))
    second = reading(slurm, reading(slurm), now_s=NOW_S + 86_400)
    (warning,) = [one.message for one in caplog.records]
    assert warning.startswith(said)
    assert second.misfits == (warning,)


def test_a_queue_that_passes_do_not_come_to_the_end_of_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slurm, depth = site(waiting={7: JOB}), Configuration().backfill_depth
    slurm.passed = BackfillPass(NOW_S - 10, active=False, tried=depth - 1, left=253)
    first = reading(slurm)
    assert first.misfits[0].startswith(
        f"Slurm's last backfill pass stopped after {depth - 1} tries with 253 jobs left"
    )
    slurm.passed = replace(slurm.passed, left=254)
    assert "with 254 jobs left" in reading(slurm, first).misfits[0]
    assert len(caplog.records) == 1
    slurm.passed = replace(slurm.passed, left=0)
    assert not reading(slurm, first).misfits


def test_that_a_site_cancels_what_it_preempts_is_known_from_the_first_such_element() -> None:
    first = reading(site(trainer("preempted n1")))
    assert "PreemptMode=CANCEL" in first.misfits[0]
    assert reading(site(), first).misfits == first.misfits
    assert reading(site()).misfits == ()


@cases(
    "waiting, last_pass",
    nothing=({}, None),
    a_job_for_something_else=({7: replace(JOB, for_nodes=False)}, None),
    a_job_for_nodes=({7: JOB}, LAST_PASS),
)
def test_the_last_pass_is_asked_for_while_there_waits(
    waiting: dict[int, WaitingJob], last_pass: BackfillPass | None
) -> None:
    slurm = site(waiting=waiting)
    assert reading(slurm).last_pass == last_pass
    assert reading(slurm, due="nodes reservations").last_pass is None
    assert slurm.requests_.count("last_pass") == (last_pass is not None)


def test_trainers_of_others_are_ordinary_jobs() -> None:
    seen = reading(site(MINE, THEIRS), mine=lambda one: one.array == THEIRS.array)
    assert [one.array for one in seen.queue.trainers] == [THEIRS.array]
    assert seen.queue.ordinary_nodes == {"n1", "n2", "n9"}


HELD = trainer("held", "held", array=99)
MOVED = replace(HELD, partition="main")


@cases(
    "one, mine, said",
    moved_by_the_site=(MOVED, True, "in partition main, not bftrainer, so it stays held"),
    of_another_controller=(MOVED, False, ""),
    in_our_partition=(HELD, True, ""),
    one_that_runs_elsewhere=(replace(THEIRS, partition="main"), True, ""),
)
def test_a_trainer_that_came_to_another_partition_is_named(
    one: Trainer, mine: bool, said: str
) -> None:
    ours = Snapshot(0.0).partition
    found = reading(site(one), mine=lambda it: mine and it.partition == ours).queue.malformed
    assert (99 in found) == bool(said)
    assert said in found.get(99, "")


def test_a_trainer_that_came_without_its_record_is_named() -> None:
    class Slurm(MadeUpSlurm):
        def queue(self) -> Queue:
            return replace(super().queue(), bare={7: "bftrainer", 8: "main"})

    found = reading(Slurm(NOW_S, [])).queue.malformed
    assert found.keys() == {7}
    assert "replaces comments" in found[7]


@cases(
    "slurm, mine, names",
    a_busy_node_with_no_job_to_be_seen_is=(site(nodes="n5 n6", private={"n5"}), True, {"n5"}),
    nodes_of_trainers_and_of_ordinary_jobs_are_not=(site(nodes="n1 n2 n9"), True, set()),
    one_on_which_an_element_only_waits_to_start_is=(site(nodes="n3", private={"n3"}), True, {"n3"}),
    those_of_trainers_of_others_are_not=(site(THEIRS, nodes="n1"), False, set()),
)  # fmt: skip
def test_unexplained(slurm: MadeUpSlurm, mine: bool, names: set[str]) -> None:
    assert reading(slurm, mine=lambda _: mine).unexplained == names


def test_what_is_unexplained_stays_so_until_nodes_are_read_again() -> None:
    slurm = site(nodes="n5", private={"n5"})
    first = reading(slurm)
    assert reading(slurm, first, due="pass").unexplained == {"n5"}
    slurm.private.clear()
    assert reading(slurm, first).unexplained == set()
