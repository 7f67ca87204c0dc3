"""The life of an element: the table of its phases, and what is told of its stays on nodes."""

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
from bftrainer_slurm.model import Element, ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, failed, places, released

FIRST = ElementId(ARRAY, 0)
SAID = {
    ElementState.HELD: Phase.HELD,
    ElementState.WITHHELD: Phase.WITHHELD,
    ElementState.SUSPENDED: Phase.SUSPENDED,
    ElementState.PENDING: Phase.ASTRAY,
    ElementState.DELAYED: Phase.RECLAIMED,
    ElementState.RUNNING: Phase.RUNNING,
    ElementState.SUSPENDED: Phase.SUSPENDED,
    ElementState.ENDING: Phase.ENDING,
    ElementState.COMPLETED: Phase.DONE,
    ElementState.FAILED: Phase.FAILED,
    ElementState.CANCELLED: Phase.DONE,
    ElementState.PREEMPTED: Phase.PREEMPTED,
    ElementState.LOST: Phase.DONE,
    None: Phase.DONE,
}
OWN_DOING = {
    (Phase.RELEASED, ElementState.PENDING): Phase.RELEASED,
    (Phase.LEAVING, ElementState.RUNNING): Phase.LEAVING,
    (Phase.REVIVED, ElementState.HELD): Phase.REVIVED,
    (Phase.REVIVED, ElementState.FAILED): Phase.REVIVED,
    (Phase.REVIVED, ElementState.COMPLETED): Phase.REVIVED,
    (Phase.REVIVED, ElementState.PREEMPTED): Phase.REVIVED,
}
# A script that runs for a moment only; of an element whose script is known to have run, or not.
UNLAUNCHED = element(0, ElementState.FAILED, "n1", exit_status=1, start_s=NOW_S, end_s=NOW_S)


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
    record = ElementRecord(before, NOW_S, "n1", targets=places("n1"))
    expected = OWN_DOING.get((before, state), SAID[state]) if state else Phase.DONE
    assert after(record, seen(state)).phase is expected


def test_a_look_that_shows_nothing_new_changes_nothing() -> None:
    for phase, state in itertools.product(Phase, ElementState):
        once = after(ElementRecord(phase, NOW_S, "n1"), seen(state), 1)
        assert after(once, seen(state), 2) == once


@pytest.mark.parametrize(
    ("before", "state", "then"),
    [
        (Phase.LEAVING, ElementState.RUNNING, Phase.RUNNING),
        (Phase.REVIVED, ElementState.HELD, Phase.HELD),
        (Phase.REVIVED, ElementState.FAILED, Phase.FAILED),
        (Phase.REVIVED, ElementState.COMPLETED, Phase.DONE),
    ],
)
def test_what_slurm_has_not_heard_of_for_long_is_as_slurm_says(
    before: Phase, state: ElementState, then: Phase
) -> None:
    record = ElementRecord(before, NOW_S, "n1", ours=before is Phase.LEAVING)
    assert after(record, seen(state), 400).phase is then


def test_an_end_that_slurm_did_not_hear_of_is_not_ours_any_more() -> None:
    leaving = ElementRecord(Phase.LEAVING, NOW_S, "n1", ours=True)
    runs_on = after(leaving, seen(ElementState.RUNNING), 60)
    _, (ended,) = follow(runs_on, FIRST, seen(ElementState.DELAYED), NOW_S + 90)
    assert isinstance(ended, Ended)
    assert ended.how == "reclaimed"


def test_what_could_not_be_launched_has_not_failed() -> None:
    assert after(released("n1"), UNLAUNCHED).phase is Phase.UNLAUNCHED


def test_what_has_said_that_it_runs_can_fail_at_once() -> None:
    assert after(came_up(), UNLAUNCHED).phase is Phase.FAILED
    ran = after(came_up(), element(0, ElementState.RUNNING, "n1"))
    assert after(ran, UNLAUNCHED).phase is Phase.FAILED


RUNNING = element(0, ElementState.RUNNING, "n1", start_s=NOW_S)
CAME = Began(FIRST, "n1", NOW_S)


@pytest.mark.parametrize(
    ("end", "how", "well"),
    [
        (element(0, ElementState.DELAYED), "reclaimed", False),
        (element(0, ElementState.HELD), "reclaimed", False),
        (element(0, ElementState.COMPLETED, "n1"), "ended", True),
        (failed(0, "n1"), "ended", False),
        (None, "ended", False),
    ],
)
def test_how_a_stay_ended_is_what_slurm_says(end: Element | None, how: str, well: bool) -> None:
    assert told(RUNNING, end) == [CAME, Ended(FIRST, "n1", NOW_S + 10, how, well=well)]


@pytest.mark.parametrize("state", [ElementState.HELD, ElementState.DELAYED])
def test_an_element_that_we_ended_shrank(state: ElementState) -> None:
    leaving = ElementRecord(Phase.LEAVING, NOW_S, "n1", ours=True)
    assert [one.how for one in told(RUNNING, element(0, state), begin=leaving)
            if isinstance(one, Ended)] == ["shrank"]  # fmt: skip


def test_an_element_that_runs_elsewhere_was_reclaimed_and_grew_in_between() -> None:
    elsewhere = element(0, ElementState.RUNNING, "n2", start_s=NOW_S + 9)
    assert told(RUNNING, elsewhere) == [
        CAME,
        Ended(FIRST, "n1", NOW_S + 10, "reclaimed"),
        Began(FIRST, "n2", NOW_S + 9),
    ]


def test_an_element_that_is_ending_has_not_left_yet() -> None:
    ending = element(0, ElementState.ENDING, "n1")
    assert told(RUNNING, ending) == [CAME]


def test_how_long_an_element_was_seen_ending_is_told() -> None:
    ending = element(0, ElementState.ENDING, "n1")
    *_, ended = told(RUNNING, ending, ending, element(0, ElementState.HELD))
    assert isinstance(ended, Ended)
    assert ended.took_s == 20


def test_the_elements_own_notes_give_the_times_more_exactly() -> None:
    runs, (began,) = follow(came_up(after_s=0.25), FIRST, RUNNING, NOW_S + 5)
    assert began == Began(FIRST, "n1", NOW_S + 0.25)
    down = replace(runs, down_s=NOW_S + 7.5)
    _, (ended,) = follow(down, FIRST, element(0, ElementState.DELAYED), NOW_S + 10)
    assert ended.time_s == NOW_S + 7.5


def test_notes_that_fit_nothing_that_slurm_says_are_not_believed() -> None:
    _, (began,) = follow(came_up(after_s=-500), FIRST, RUNNING, NOW_S + 5)
    assert began.time_s == NOW_S
    down = ElementRecord(Phase.RUNNING, NOW_S, "n1", down_s=NOW_S + 1)
    _, (ended,) = follow(down, FIRST, element(0, ElementState.DELAYED), NOW_S + 500)
    assert ended.time_s == NOW_S + 500


def test_an_element_that_came_and_was_taken_back_between_two_looks_was_reclaimed() -> None:
    came = replace(came_up("n2", after_s=2.5), down_s=NOW_S + 7.5)
    assert follow(came, FIRST, element(0, ElementState.DELAYED), NOW_S + 10)[1] == [
        Began(FIRST, "n2", NOW_S + 2.5),
        Ended(FIRST, "n2", NOW_S + 7.5, "reclaimed"),
    ]


def test_an_element_that_is_ending_when_it_is_first_seen_had_a_stay() -> None:
    ending = element(0, ElementState.ENDING, "n1")
    events = told(ending, element(0, ElementState.DELAYED), begin=came_up())
    assert [type(one) for one in events] == [Began, Ended]


@pytest.mark.parametrize("state", [ElementState.PENDING, ElementState.HELD])
def test_an_element_that_slurm_has_not_started_had_no_stay_whatever_it_said(
    state: ElementState,
) -> None:
    assert told(element(0, state), begin=came_up()) == []


def test_where_a_released_one_may_start_is_known_until_it_does() -> None:
    waiting = after(released("n1", "n2"), element(0, ElementState.PENDING))
    assert waiting.targets == places("n1 n2")
    assert after(waiting, element(0, ElementState.RUNNING, "n2")).targets == set()


def test_why_a_released_one_waits_is_known() -> None:
    pending = element(0, ElementState.PENDING, reason="Resources")
    assert after(released("n1"), pending).reason == "Resources"


def test_an_element_that_was_cancelled_for_an_ordinary_job_was_reclaimed() -> None:
    (_, ended) = told(
        element(0, ElementState.RUNNING, "n1", start_s=NOW_S),
        element(0, ElementState.PREEMPTED, "n1", start_s=NOW_S),
    )
    assert ended == Ended(FIRST, "n1", NOW_S + 10, "reclaimed")
