"""What is known of a trainer and its elements, after looks, notes, and what was done.

The life of an element: the table of its phases, and what is told of its time on nodes.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.phases import (
    HELD,
    Began,
    ElementRecord,
    Ended,
    Event,
    Phase,
    follow,
)
from bftrainer_slurm.controller.state.trainer_state import (
    TrainerState,
    apply_note,
    change,
    note_failed,
)
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Element, ElementId, ElementState
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

FIRST = ElementId(ARRAY, 0)
# The phase of the same name, or it is over; where the controller has done something, it stays.
SAID: dict[ElementState | None, Phase] = {
    **{one: Phase.__members__.get(one.name, Phase.DONE) for one in ElementState},
    ElementState.PENDING: Phase.ASTRAY,
    ElementState.DELAYED: Phase.RECLAIMED,
    None: Phase.DONE,
}
OWN_DOING: set[tuple[Phase, ElementState | None]] = {
    (Phase.RELEASED, ElementState.PENDING),
    (Phase.LEAVING, ElementState.RUNNING),
    *((Phase.REVIVED, ElementState[one]) for one in ("HELD", "FAILED", "COMPLETED", "PREEMPTED")),
}
# A script that runs for a moment only; of an element whose script is known to have run, or not.
UNLAUNCHED = element(0, "failed n1", exit_status=1, start_s=NOW_S, end_s=NOW_S)


def came_up(node: str = "n1", after_s: float = 0.0) -> ElementRecord:
    """A released element that has said so long after ``NOW_S`` that it is up on a node."""
    return replace(released("n1", "n2"), up=(node, NOW_S + after_s), ran=True)


def seen(state: ElementState | None) -> Element | None:
    if state is ElementState.FAILED:
        return failed(0, "n1")
    return None if state is None else element(0, state, "n1", start_s=NOW_S)


def after(before: ElementRecord, now: Element | None, seconds: float = 1.0) -> ElementRecord:
    return follow(before, FIRST, now, NOW_S + seconds)[0]


def told(*looks: Element | None, begin: ElementRecord = HELD) -> list[Event]:
    """The events of these looks, ten seconds apart, the first at ``NOW_S``."""
    record, events = begin, []
    for number, look in enumerate(looks):
        record, happened = follow(record, FIRST, look, NOW_S + 10 * number)
        events += happened
    return events


@pytest.mark.parametrize(
    ("before", "state"), list(itertools.product(Phase, [*ElementState, None])), ids=str
)
def test_a_phase_and_what_slurm_says_give_the_next_phase(
    before: Phase, state: ElementState | None
) -> None:
    record = ElementRecord(before, NOW_S, "n1", targets=named("n1"))
    expected = before if (before, state) in OWN_DOING else SAID[state]
    assert after(record, seen(state)).phase is expected


def test_a_look_that_shows_nothing_new_changes_nothing() -> None:
    for phase, state in itertools.product(Phase, ElementState):
        once = after(ElementRecord(phase, NOW_S, "n1"), seen(state), 1)
        assert after(once, seen(state), 2) == once


@cases(
    "before, now, then",
    leaving=(Phase.LEAVING, ElementState.RUNNING, Phase.RUNNING),
    brought_back=(Phase.REVIVED, ElementState.HELD, Phase.HELD),
    brought_back_in_vain=(Phase.REVIVED, ElementState.FAILED, Phase.FAILED),
    brought_back_as_it_ended_well=(Phase.REVIVED, ElementState.COMPLETED, Phase.DONE),
)
def test_what_slurm_has_not_heard_of_for_long_is_as_slurm_says(
    before: Phase, now: ElementState, then: Phase
) -> None:
    record = ElementRecord(before, NOW_S, "n1", ours=before is Phase.LEAVING)
    assert after(record, seen(now), 400).phase is then


def test_what_could_not_be_launched_has_not_failed_unless_it_has_said_that_it_runs() -> None:
    assert after(released("n1"), UNLAUNCHED).phase is Phase.UNLAUNCHED
    assert after(came_up(), UNLAUNCHED).phase is Phase.FAILED
    ran = after(came_up(), element(0, "running n1"))
    assert after(ran, UNLAUNCHED).phase is Phase.FAILED


RUNNING = element(0, "running n1", start_s=NOW_S)
CAME = Began(FIRST, "n1", NOW_S)


LEFT_S = NOW_S + 10
ENDING, REQUEUED = element(0, "ending n1"), element(0, "delayed")
OURS = ElementRecord(Phase.LEAVING, NOW_S, "n1", ours=True)


@cases(
    "looks, events",
    of_one_that_slurm_requeued=([REQUEUED], [Ended(FIRST, "n1", LEFT_S, "reclaimed")]),
    of_one_that_was_held_since=(
        [element(0, "held", queued_s=NOW_S + 3)], [Ended(FIRST, "n1", LEFT_S, "reclaimed")]
    ),
    of_one_that_was_cancelled_for_an_ordinary_job=(
        [element(0, "preempted n1", start_s=NOW_S)], [Ended(FIRST, "n1", LEFT_S, "reclaimed")]
    ),
    well_ended=([element(0, "completed n1")], [Ended(FIRST, "n1", LEFT_S, "ended", well=True)]),
    that_failed=([failed(0, "n1")], [Ended(FIRST, "n1", LEFT_S, "ended")]),
    that_slurm_has_forgotten=([None], [Ended(FIRST, "n1", LEFT_S, "ended")]),
    of_one_that_runs_elsewhere_and_grew_in_between=(
        [element(0, "running n2", start_s=NOW_S + 9)],
        [Ended(FIRST, "n1", LEFT_S, "reclaimed"), Began(FIRST, "n2", NOW_S + 9)],
    ),
    of_one_that_is_ending_and_has_not_left_yet=([ENDING], []),
    of_one_that_was_seen_ending_for_a_while=(
        [ENDING, ENDING, element(0, "held")],
        [Ended(FIRST, "n1", NOW_S + 30, "reclaimed", took_s=20)],
    ),
)  # fmt: skip
def test_a_stay(looks: list[Element | None], events: list[Event]) -> None:
    assert told(RUNNING, *looks) == [CAME, *events]


@cases(
    "begin, looks, ways",
    an_end_that_we_asked_for_is_ours=(OURS, [RUNNING, element(0, "held")], ["shrank"]),
    also_where_slurm_requeues_it=(OURS, [RUNNING, REQUEUED], ["shrank"]),
    not_where_slurm_did_not_hear_of_it=(OURS, [RUNNING] * 8 + [REQUEUED], ["reclaimed"]),
    one_that_is_ending_at_first_had_a_stay=(came_up(), [ENDING, REQUEUED], ["begins", "reclaimed"]),
    one_that_has_not_started_had_none_whatever_it_said=(came_up(), [element(0, "pending")], []),
    nor_one_that_is_held=(came_up(), [element(0, "held")], []),
)  # fmt: skip
def test_of_events(begin: ElementRecord, looks: list[Element | None], ways: list[str]) -> None:
    found = told(*looks, begin=begin)
    assert [one.how if isinstance(one, Ended) else "begins" for one in found] == ways


def test_an_element_begins_on_its_part_of_a_node() -> None:
    assert told(replace(RUNNING, gpus=2)) == [Began(FIRST, "n1", NOW_S, 2)]


@cases(
    "up_s, down_s, looked_s, times",
    give_the_times_more_exactly=(0.25, 7.5, 10, (0.25, 7.5)),
    are_not_believed_where_they_fit_nothing_that_slurm_says=(-500, 1, 500, (0, 500)),
)
def test_the_elements_own_notes(
    up_s: float, down_s: float, looked_s: float, times: tuple[float, float]
) -> None:
    runs, (began,) = follow(came_up(after_s=up_s), FIRST, RUNNING, NOW_S + 5)
    down = replace(runs, down_s=NOW_S + down_s)
    _, (ended,) = follow(down, FIRST, REQUEUED, NOW_S + looked_s)
    assert (began.time_s - NOW_S, ended.time_s - NOW_S) == times


def test_an_element_that_came_and_was_taken_back_between_two_looks_was_reclaimed() -> None:
    came = replace(came_up("n2", after_s=2.5), down_s=NOW_S + 7.5)
    assert follow(came, FIRST, REQUEUED, NOW_S + 10)[1] == [
        Began(FIRST, "n2", NOW_S + 2.5),
        Ended(FIRST, "n2", NOW_S + 7.5, "reclaimed"),
    ]


def test_where_a_released_one_may_start_and_why_it_waits_is_known_until_it_does() -> None:
    waiting = after(released("n1", "n2"), element(0, "pending", reason="Resources"))
    assert (waiting.targets, waiting.reason) == (named("n1 n2"), "Resources")
    assert after(waiting, element(0, "running n2")).targets == set()


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


@pytest.mark.parametrize("kind", [NoteKind.LEAVING, NoteKind.GONE])
def test_an_element_says_when_it_leaves(kind: NoteKind) -> None:
    state = apply_note(state_of(trainer(ON_N1)), note(kind, NOW_S + 3, 0, "n1"))
    assert state.of(0).down_s == NOW_S + 3


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
