"""What is known of a trainer, after looks, notes, and what the controller has done."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.trainer_state import (
    TrainerState,
    apply_note,
    change,
    note_failed,
)
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Element, ElementId
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    element,
    failed,
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


@cases(
    "state, node, up",
    says_where_it_runs_before_slurm_does=(TrainerState({0: released("n1", "n2")}), "n2", True),
    not_where_it_was_not_let_go=(LET_GO, "n7", False),
    not_where_it_runs_elsewhere=(state_of(trainer(ON_N1)), "n7", False),
    not_where_the_controller_has_let_nothing_go=(TrainerState(), "n1", False),
)
def test_an_element_that_is_up(state: TrainerState, node: str, up: bool) -> None:
    after = apply_note(state, note(NoteKind.UP, node=node))
    assert after.of(0).up == ((node, NOW_S) if up else None)
    assert up or after == state


REFUSED = {"n1": NOW_S + 3600}
WAITS = "None", "Resources", "Priority", "ReqNodeNotAvail", "Prolog"
LIMITS = "AssocMaxJobsLimit", "QOSMaxNodePerUserLimit", "Dependency", "PartitionDown"


@pytest.mark.parametrize("reason", [*WAITS, *LIMITS, "BadConstraints"])
def test_by_why_slurm_does_not_start_it_a_trainer_waits_or_is_refused_the_node(reason: str) -> None:
    state = refused(reason)
    assert (state.wait is not None) == (reason in LIMITS)
    assert state.wait is None or (state.wait.reason == reason and state.wait.until_s > NOW_S)
    assert state.refused == (REFUSED if reason == "BadConstraints" else {})


def test_it_is_so_where_slurm_has_held_it_unless_the_reason_is_from_before() -> None:
    assert refused("BadConstraints", "held").refused == REFUSED
    assert state_of(trainer(element(0, "held n1", reason="BadConstraints"))).refused == {}


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
    each_on_its_node_as_they_start=([just_failed(0, "n1"), just_failed(1, "n2")], ("n1", "n2")),
)
def test_elements_that_fail_together_count_once(
    elements: list[Element], nodes: tuple[str, ...]
) -> None:
    failing = counted(*elements).failing
    assert failing is not None
    assert (failing.count, failing.nodes) == (1, nodes)


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
