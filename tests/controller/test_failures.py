"""Who is given up, and which node is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.actions import Cancel, Revive, Shrink
from bftrainer_slurm.controller.failures import (
    Where,
    bring_back,
    cancel_given_up,
    cancel_revived,
    failed,
    judge,
    progressed,
)
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import Memory, TrainerView
from bftrainer_slurm.model import ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, view

SETTINGS = Settings(max_failures=5, bad_node_s=900)
FIRST = ElementId(ARRAY, 0)
HELD = element(0, ElementState.HELD)
ON_N1 = element(0, ElementState.RUNNING, "n1")
ON_N2 = element(1, ElementState.RUNNING, "n2")
OTHER = 99


def after(*nodes: str | None, trained: bool = False, memory: Memory | None = None) -> Memory:
    """The memory after a failure on each of these nodes, a second apart."""
    memory = memory or Memory()
    for number, node in enumerate(nodes):
        memory = failed(memory, ARRAY, node, "no module named toch", trained, NOW_S + number)
    return memory


def judged(
    memory: Memory, mine: TrainerView, free: str = "", service: str = "n1 n2 n3", late_s: float = 0
) -> tuple[list[Shrink], Memory]:
    where = Where(frozenset(free.split()), frozenset(service.split()))
    return judge((mine,), memory, where, NOW_S + 10 + late_s, SETTINGS)


def test_a_script_that_fails_on_different_nodes_is_given_up_with_its_last_words() -> None:
    _, memory = judged(after("n1", "n2", "n1"), view(ON_N1, ON_N2))
    assert memory.given_up == {
        ARRAY: "failed 3 times without progress on n1, n2\nno module named toch"
    }


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")])
def test_a_failure_or_two_may_be_bad_luck(nodes: tuple[str, ...]) -> None:
    actions, memory = judged(after(*nodes), view(ON_N1, ON_N2))
    assert (actions, memory.given_up, memory.avoid) == ([], {}, {})


def test_progress_makes_failures_forgotten() -> None:
    assert progressed(after("n1", "n2", "n1"), ARRAY) == Memory()


def test_failures_hours_apart_are_not_in_a_row() -> None:
    memory = after("n1", "n2")
    memory = failed(memory, ARRAY, "n3", "", False, NOW_S + 2 * 3600)
    assert memory.failing[ARRAY].count == 1


def test_on_the_only_node_of_a_cluster_five_failures_are_enough() -> None:
    four, five = after(*["n1"] * 4), after(*["n1"] * 5)
    assert not judged(four, view(ON_N1), service="n1")[1].given_up
    assert judged(five, view(ON_N1), service="n1")[1].given_up


def test_a_node_on_which_alone_it_fails_is_left_alone_and_its_element_ended() -> None:
    actions, memory = judged(after("n1", "n1"), view(ON_N1, ON_N2))
    assert actions == [Shrink((FIRST,), "n1 may be a bad node")]
    assert memory.avoid == {"n1": NOW_S + 10 + 900}
    assert not memory.given_up


def test_a_suspected_node_is_innocent_once_the_script_fails_elsewhere_too() -> None:
    _, memory = judged(after("n1", "n1"), view(ON_N1, ON_N2))
    _, memory = judged(after("n2", memory=memory), view(HELD, ON_N2))
    assert memory.given_up
    assert memory.avoid == {}


def test_a_suspected_node_stays_alone_when_the_trainer_trains_without_it() -> None:
    _, memory = judged(after("n1", "n1"), view(ON_N1, ON_N2))
    assert progressed(memory, ARRAY).avoid == memory.avoid


def test_a_node_is_suspected_once_for_the_same_failures() -> None:
    mine = view(ON_N1, ON_N2)
    _, memory = judged(after("n1", "n1"), mine)
    assert judged(memory, mine)[0] == []
    assert judged(after("n1", memory=memory), mine)[0] != []


def test_no_trainer_can_shut_off_more_than_one_node() -> None:
    mine = view(ON_N1, ON_N2, element(2, ElementState.RUNNING, "n3"))
    _, memory = judged(after("n1", "n1", trained=True), mine)
    _, memory = judged(after("n2", "n2", trained=True, memory=memory), mine)
    assert memory.avoid.keys() == {"n2"}


def test_where_it_has_no_other_node_the_only_one_is_tried_five_times() -> None:
    assert not judged(after(*["n1"] * 4), view(ON_N1))[1].avoid
    assert judged(after(*["n1"] * 5), view(ON_N1))[1].avoid.keys() == {"n1"}
    assert judged(after(*["n1"] * 10), view(ON_N1))[1].given_up


def test_a_free_node_is_another_one_to_try() -> None:
    assert judged(after("n1", "n1"), view(ON_N1), free="n3")[1].avoid.keys() == {"n1"}


def test_a_node_on_which_others_fail_too_is_suspected_at_once() -> None:
    memory = failed(Memory(), OTHER, "n1", "", False, NOW_S)
    assert judged(after("n1", memory=memory), view(ON_N1))[1].avoid.keys() == {"n1"}


def test_who_has_trained_before_gets_time_for_an_outage_to_end() -> None:
    memory = after("n1", "n2", "n3", "n1", "n2", trained=True)
    assert not judged(memory, view(ON_N1, ON_N2))[1].given_up
    assert judged(memory, view(ON_N1, ON_N2), late_s=900)[1].given_up


def test_failures_that_nobody_can_place_count_too() -> None:
    assert not judged(after(*[None] * 4), view(ON_N1, ON_N2))[1].given_up
    memory = judged(after(*[None] * 5), view(ON_N1, ON_N2))[1]
    assert memory.given_up[ARRAY].startswith("failed 5 times without progress\n")


def test_what_is_left_of_a_trainer_is_cancelled_until_nothing_is() -> None:
    mine, memory = view(ON_N1, HELD), Memory(given_up={ARRAY: "why"})
    cancels, memory = cancel_given_up((mine,), memory, NOW_S)
    assert cancels == [Cancel(ARRAY, "why")]
    assert cancel_given_up((mine,), memory, NOW_S + 15)[0] == []
    assert cancel_given_up((mine,), memory, NOW_S + 60)[0] == cancels
    ended = view(element(0, ElementState.CANCELLED))
    assert cancel_given_up((ended,), memory, NOW_S + 120)[0] == []


def test_a_failed_element_is_brought_back_and_the_trainer_rests_a_while() -> None:
    mine = view(element(0, ElementState.FAILED, "n1"), element(1, ElementState.HELD))
    actions, memory = bring_back(mine, Memory(), False, NOW_S)
    assert actions == [Revive((FIRST,))]
    assert memory.patient_until == {ARRAY: NOW_S + 5}
    assert memory.failing[ARRAY].nodes == ("n1",)
    assert bring_back(mine, memory, False, NOW_S)[1].patient_until == {ARRAY: NOW_S + 10}


def test_elements_that_fail_together_count_once_and_on_no_node() -> None:
    mine = view(element(0, ElementState.FAILED, "n1"), element(1, ElementState.FAILED, "n2"))
    _, memory = bring_back(mine, Memory(), False, NOW_S)
    assert (memory.failing[ARRAY].count, memory.failing[ARRAY].nodes) == (1, ())


def test_a_failed_element_is_brought_back_beside_one_that_slurm_has_lost() -> None:
    mine = view(element(0, ElementState.FAILED, "n1"), element(1, ElementState.LOST, "n2"))
    assert bring_back(mine, Memory(), False, NOW_S)[0] == [Revive((FIRST,))]


@pytest.mark.parametrize(
    ("mine", "memory"),
    [
        (view(element(0, ElementState.FAILED)), Memory(given_up={ARRAY: "why"})),
        (view(element(0, ElementState.FAILED), element(1, ElementState.CANCELLED)), Memory()),
        (view(ON_N1), Memory()),
        (view(ON_N1, element(1, ElementState.LOST, "n2")), Memory()),
    ],
)
def test_nothing_is_brought_back_of_who_is_given_up_or_cancelled_or_well(
    mine: TrainerView, memory: Memory
) -> None:
    assert bring_back(mine, memory, False, NOW_S) == ([], memory)


CANCELLED = element(1, ElementState.CANCELLED)


def revived() -> Memory:
    mine = view(element(0, ElementState.FAILED, "n1"), element(1, ElementState.HELD))
    return bring_back(mine, Memory(), False, NOW_S)[1]


def test_what_was_brought_back_while_its_owner_cancelled_the_trainer_is_cancelled_too() -> None:
    actions, memory = cancel_revived((view(HELD, CANCELLED),), revived(), NOW_S)
    assert actions == [Cancel(ARRAY, "cancelled by its owner")]
    assert memory.patient_until == {ARRAY: NOW_S + 5}


def test_that_is_said_until_slurm_has_heard_it() -> None:
    _, memory = cancel_revived((view(HELD, CANCELLED),), revived(), NOW_S)
    again, memory = cancel_revived((view(HELD, CANCELLED),), memory, NOW_S)
    assert again != []
    gone = view(element(0, ElementState.CANCELLED), CANCELLED)
    assert cancel_revived((gone,), memory, NOW_S) == ([], replace(memory, revived={}))


def test_that_is_decided_when_all_that_ran_has_ended() -> None:
    ending = view(HELD, CANCELLED, element(2, ElementState.ENDING, "n2"))
    actions, memory = cancel_revived((ending,), revived(), NOW_S)
    assert actions == []
    assert cancel_revived((view(HELD, CANCELLED),), memory, NOW_S)[0] != []


@pytest.mark.parametrize("state", [ElementState.HELD, ElementState.RUNNING, ElementState.WITHHELD])
def test_a_trainer_of_which_something_else_is_left_was_not_cancelled(state: ElementState) -> None:
    mine = view(HELD, CANCELLED, element(2, state, "n2"))
    actions, memory = cancel_revived((mine,), revived(), NOW_S)
    assert actions == []
    assert memory.revived == {}


def test_a_trainer_that_is_cancelled_later_is_left_alone() -> None:
    _, memory = cancel_revived((view(HELD, element(1, ElementState.HELD)),), revived(), NOW_S)
    assert cancel_revived((view(HELD, CANCELLED),), memory, NOW_S)[0] == []
