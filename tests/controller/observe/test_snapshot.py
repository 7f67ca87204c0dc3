"""One reading of Slurm: what is read when, and what it says of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bftrainer_slurm.controller.observe.snapshot import Snapshot, read
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementState,
    Node,
    NodeState,
    Queue,
    Reservation,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.gateway import GatewayError
from tests.controller.worlds import NOW_S, element, node, trainer

MINE = trainer(
    element(0, ElementState.RUNNING, "n1"),
    element(1, ElementState.ENDING, "n2"),
    element(2, ElementState.PENDING, "n3"),
)
THEIRS = replace(MINE, array=99)
LAST_PASS = BackfillPass(NOW_S - 10, active=False)
RESERVED = (Reservation("course", NOW_S, NOW_S + 60, ("n1",)),)


@dataclass
class Answers:
    """A gateway that gives these answers, and notes what it was asked."""

    queue_: Queue = field(default_factory=lambda: Queue((MINE,), (), frozenset({"n9"})))
    nodes_: tuple[Node, ...] = ()
    configuration_: Configuration = field(default_factory=Configuration)
    asked: list[str] = field(default_factory=list)

    def queue(self) -> Queue:
        self.asked.append("queue")
        return self.queue_

    def nodes(self) -> tuple[Node, ...]:
        self.asked.append("nodes")
        return self.nodes_

    def reservations(self) -> tuple[Reservation, ...]:
        self.asked.append("reservations")
        return RESERVED

    def configuration(self, partition: str) -> Configuration:
        self.asked.append(f"configuration of {partition}")
        return self.configuration_

    def last_pass(self) -> BackfillPass:
        self.asked.append("last pass")
        return LAST_PASS


def reading(
    answers: Answers,
    last: Snapshot | None = None,
    *,
    now_s: float = NOW_S,
    due: bool = True,
    pass_due: bool = True,
    mine: Callable[[Trainer], bool] = lambda _: True,
) -> Snapshot:
    return read(
        answers,  # type: ignore[arg-type]
        last or Snapshot(0.0),
        now_s,
        ({"nodes", "reservations"} if due else set()) | ({"pass"} if pass_due else set()),
        mine,
    )


def busy(*names: str) -> tuple[Node, ...]:
    return tuple(node(name, NodeState.BUSY) for name in names)


def test_what_is_not_due_is_as_it_was() -> None:
    answers = Answers(nodes_=(node("n1"),))
    first = reading(answers)
    answers.asked.clear()
    second = reading(answers, first, now_s=NOW_S + 15, due=False)
    assert answers.asked == ["queue"]
    assert (second.time_s, second.nodes, second.reservations) == (
        NOW_S + 15, first.nodes, RESERVED,
    )  # fmt: skip


def test_how_slurm_is_configured_is_asked_now_and_then() -> None:
    answers = Answers()
    first = reading(answers)
    reading(answers, first, now_s=NOW_S + 15)
    reading(answers, first, now_s=NOW_S + 86_400)
    assert answers.asked.count("configuration of bftrainer") == 2


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
    answers = Answers(configuration_=Configuration(**settings))
    first = reading(answers)
    second = reading(answers, first, now_s=NOW_S + 86_400)
    (warning,) = [one.message for one in caplog.records]
    assert warning.startswith(said)
    assert second.misfits == (warning,)


def test_a_site_that_suits_trainers_is_told_nothing() -> None:
    assert reading(Answers()).misfits == ()


def test_that_a_site_cancels_what_it_preempts_is_known_from_the_first_such_element() -> None:
    preempted = trainer(element(0, ElementState.PREEMPTED, "n1"))
    first = reading(Answers(Queue((preempted,), (), frozenset())))
    assert "PreemptMode=CANCEL" in first.misfits[0]
    assert reading(Answers(), first).misfits == first.misfits


def test_the_last_pass_is_asked_for_while_a_job_waits_for_nodes() -> None:
    job = WaitingJob(7, "main", 1)
    for waiting, last_pass in (
        ((), None),
        ((replace(job, for_nodes=False),), None),
        ((job,), LAST_PASS),
    ):
        answers = Answers(Queue((MINE,), waiting, frozenset()))
        assert reading(answers).last_pass == last_pass
        assert reading(answers, pass_due=False).last_pass is None
        assert answers.asked.count("last pass") == (last_pass is not None)


def test_trainers_of_others_are_ordinary_jobs() -> None:
    answers = Answers(Queue((MINE, THEIRS), (), frozenset({"n9"})))
    seen = reading(answers, mine=lambda one: one.array == THEIRS.array)
    assert seen.queue.trainers == (THEIRS,)
    assert seen.queue.ordinary_nodes == {"n1", "n2", "n9"}


def test_a_busy_node_with_no_job_to_be_seen_is_unexplained() -> None:
    assert reading(Answers(nodes_=(*busy("n5"), node("n6")))).unexplained == {"n5"}


def test_nodes_of_trainers_and_of_ordinary_jobs_explain_themselves() -> None:
    assert reading(Answers(nodes_=busy("n1", "n2", "n9"))).unexplained == set()


def test_a_node_on_which_an_element_only_waits_to_start_is_not_explained_by_it() -> None:
    assert reading(Answers(nodes_=busy("n3"))).unexplained == {"n3"}


def test_a_trainer_of_others_explains_its_nodes_too() -> None:
    answers = Answers(Queue((THEIRS,), (), frozenset()), busy("n1"))
    assert reading(answers, mine=lambda _: False).unexplained == set()


def test_what_is_unexplained_stays_so_until_nodes_are_read_again() -> None:
    answers = Answers(nodes_=busy("n5"))
    first = reading(answers)
    assert reading(answers, first, due=False).unexplained == {"n5"}
    answers.nodes_ = (node("n5"),)
    assert reading(answers, first).unexplained == set()


def test_what_slurm_does_not_say_of_its_configuration_is_asked_for_a_minute_later() -> None:
    class Silent(Answers):
        def configuration(self, partition: str) -> Configuration:
            super().configuration(partition)
            raise GatewayError("exit status 1")

    answers = Silent()
    first = reading(answers)
    assert first.configuration == Configuration()
    for seconds, asked in ((30, 1), (61, 2)):
        reading(answers, first, now_s=NOW_S + seconds)
        assert sum(one.startswith("configuration") for one in answers.asked) == asked
