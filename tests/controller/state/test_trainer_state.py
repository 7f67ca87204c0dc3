"""What is known of a trainer, after looks, notes, and what the controller has done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.phases import HELD, Ended, Phase
from bftrainer_slurm.controller.state.trainer_state import (
    FINISHED,
    TrainerState,
    advance,
    apply_note,
    change,
    note_failed,
    release,
)
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Element, ElementId
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    element,
    failed,
    named,
    note,
    released,
    state_of,
    trainer,
)

FIRST, SECOND = ElementId(ARRAY, 0), ElementId(ARRAY, 1)
ON_N1 = element(0, "running n1")
LET_GO = TrainerState({0: released("n1")})


def refused(reason: str, state: str = "pending") -> TrainerState:
    """After a look at an element that Slurm does not start, and says why."""
    return state_of(trainer(element(0, state, reason=reason)), LET_GO)


def counted(*elements: Element, before: TrainerState | None = None) -> TrainerState:
    """After a look at elements that may have failed."""
    return note_failed(state_of(trainer(*elements), before), trained=False, now_s=NOW_S)


def test_elements_that_are_held_and_nothing_else_need_no_record() -> None:
    state = state_of(trainer("held", "running n1"))
    assert (state.elements.keys(), state.of(0)) == ({1}, HELD)


def test_one_that_was_just_ended_is_remembered_for_a_moment() -> None:
    ran, held = state_of(trainer(ON_N1)), [element(0, "held")]
    ended, _ = advance(ran, ARRAY, held, NOW_S, keep_s=2.0)
    assert ended.of(0).since_s == NOW_S
    assert advance(ended, ARRAY, held, NOW_S + 2, keep_s=2.0)[0].elements == {}


def test_once_an_element_has_ended_well_its_trainer_has_finished() -> None:
    state = state_of(trainer("completed", "held"))
    assert (state.over, state.finished_s) == (FINISHED, NOW_S)
    forgotten = trainer(element(1, "held"))
    assert state_of(forgotten, state).over == FINISHED


def test_elements_that_slurm_has_forgotten_have_left_their_nodes() -> None:
    state = state_of(trainer(ON_N1, element(1, "held")))
    for left in ([element(1, "held")], []):  # some of them, or all
        after, events = advance(state, ARRAY, left, NOW_S + 5, keep_s=0)
        assert events == [Ended(FIRST, "n1", NOW_S + 5, "ended")]
        assert after.elements == {}


def test_elements_are_let_go_each_on_one_of_the_nodes() -> None:
    state = release(TrainerState(), (FIRST, SECOND), named("n1 n2"), NOW_S)
    assert state.of(0) == state.of(1) == replace(released("n1", "n2"), sent=True)


def test_an_element_that_is_up_says_where_it_runs_before_slurm_does() -> None:
    let_go = TrainerState({0: released("n1", "n2")})
    assert apply_note(let_go, note(NoteKind.UP, node="n2")).of(0).up == ("n2", NOW_S)


def test_nobody_is_up_where_the_controller_has_let_nothing_go() -> None:
    for state in (LET_GO, state_of(trainer(ON_N1))):
        assert apply_note(state, note(NoteKind.UP, node="n7")) == state
    assert apply_note(TrainerState(), note(NoteKind.UP, node="n1")) == TrainerState()


@pytest.mark.parametrize("kind", [NoteKind.LEAVING, NoteKind.GONE])
def test_an_element_says_when_it_leaves(kind: NoteKind) -> None:
    state = apply_note(state_of(trainer(ON_N1)), note(kind, NOW_S + 3, 0, "n1"))
    assert state.of(0).down_s == NOW_S + 3


@pytest.mark.parametrize("said", ["held", "pending"])
def test_a_node_that_slurm_calls_unfit_is_refused_for_an_hour(said: str) -> None:
    state = refused("BadConstraints", said)
    assert (state.refused, state.wait) == ({"n1": NOW_S + 3600}, None)


def test_a_reason_from_before_says_nothing_of_a_node() -> None:
    held = element(0, "held n1", reason="BadConstraints")
    assert state_of(trainer(held)).refused == {}


@pytest.mark.parametrize(
    "reason", ["AssocMaxJobsLimit", "QOSMaxNodePerUserLimit", "Dependency", "PartitionDown"]
)
def test_a_trainer_waits_whose_element_waits_for_no_node(reason: str) -> None:
    state = refused(reason)
    assert state.wait is not None
    assert (state.wait.reason, state.refused) == (reason, {})
    assert state.wait.until_s > NOW_S


@pytest.mark.parametrize("reason", ["None", "Resources", "Priority", "ReqNodeNotAvail", "Prolog"])
def test_an_element_that_waits_for_its_node_is_left_to_wait(reason: str) -> None:
    state = refused(reason)
    assert (state.wait, state.refused) == (None, {})


def test_a_failed_element_counts_once_and_the_trainer_rests_longer_after_each() -> None:
    once = counted(failed(0, "n1"), element(1, "held"))
    assert once.failing is not None
    assert (once.failing.count, once.failing.nodes) == (1, ("n1",))
    assert once.rests_until_s == NOW_S + 5
    later = state_of(trainer(failed(0, "n1")), once, NOW_S + 5)
    assert note_failed(later, trained=False, now_s=NOW_S + 5).failing == once.failing
    assert counted(failed(1, "n1"), before=once).rests_until_s == NOW_S + 10


def test_a_failure_that_is_still_there_long_after_it_was_to_be_brought_back_is_no_other() -> None:
    once = counted(failed(0, "n1"))
    revived = change(once, (FIRST,), Phase.REVIVED, NOW_S - 60)
    assert counted(failed(0, "n1"), before=revived).failing == once.failing


def just_failed(task: int, node: str) -> Element:
    """An element whose script has failed as it started."""
    return element(task, "failed", node, exit_status=127, start_s=NOW_S - 2)


@cases(
    "elements, nodes",
    on_no_node=([failed(0, "n1"), failed(1, "n2")], ()),
    each_on_its_node_where_they_have_just_started=(
        [just_failed(0, "n1"), just_failed(1, "n2")],
        ("n1", "n2"),
    ),
)
def test_elements_that_fail_together_count_once(
    elements: list[Element], nodes: tuple[str, ...]
) -> None:
    failing = counted(*elements).failing
    assert failing is not None
    assert (failing.count, failing.nodes) == (1, nodes)


def test_five_failures_as_a_script_starts_take_less_than_a_minute() -> None:
    state, rests_s = TrainerState(), []
    for task in range(5):
        state = counted(just_failed(task, "n1"), before=state)
        rests_s.append(state.rests_until_s - NOW_S)
    assert rests_s == [5, 10, 10, 10, 10]


def test_what_could_not_be_launched_counts_as_no_failure_but_the_trainer_rests() -> None:
    state = counted(element(0, "failed n1", exit_status=1, start_s=NOW_S, end_s=NOW_S))
    assert state.failing is None
    assert state.rests_until_s > NOW_S


def test_of_a_trainer_that_is_over_failures_do_not_count() -> None:
    assert counted(failed(0, "n1"), before=TrainerState(over="why")).failing is None


def test_an_element_that_was_cancelled_for_an_ordinary_job_has_not_failed() -> None:
    state = counted(element(0, "preempted n1"), before=state_of(trainer(ON_N1)))
    assert state.of(0).phase is Phase.PREEMPTED
    assert (state.failing, state.rests_until_s) == (None, 0.0)


def test_since_when_a_trainer_has_no_node_is_known() -> None:
    held, ran = trainer("held"), state_of(trainer(ON_N1))
    assert state_of(held, ran, NOW_S + 60).had_nodes_s == NOW_S + 60
    assert state_of(held, TrainerState(had_nodes_s=NOW_S), NOW_S + 60).had_nodes_s == NOW_S
