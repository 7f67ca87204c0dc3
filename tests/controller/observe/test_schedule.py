"""When the controller looks at Slurm."""

from __future__ import annotations

from typing import Any

import pytest

from bftrainer_slurm.controller.observe.schedule import LEAD_S, BackfillForecast, Schedule, lead_s
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import NoteKind
from tests.controller.worlds import cases

SETTINGS = Settings(queue_interval_s=15)
LONG_AGO_S = -1000.0  # when the controller began


def began(at_s: float = LONG_AGO_S) -> Schedule:
    return Schedule(SETTINGS, at_s)


def looked(schedule: Schedule, now_s: float, ending: bool = False, took_s: float = 0.0) -> Schedule:
    schedule.looked(now_s, also=frozenset(), ending=ending, took_s=took_s)
    return schedule


def looking(now_s: float = 0.0, took_s: float = 0.0) -> Schedule:
    """One that has looked then, long after the controller began."""
    return looked(began(), now_s, took_s=took_s)


def hinted(schedule: Schedule, kind: NoteKind, at_s: float, **more: Any) -> Schedule:
    """An element has said something since."""
    schedule.hint(kind, at_s, **more)
    return schedule


def grew(schedule: Schedule, elements: int) -> Schedule:
    schedule.grew(elements, 0.0)
    return schedule


def expecting(schedule: Schedule, at_s: float, lead_s: float = LEAD_S, **pass_: float) -> Schedule:
    """A pass is expected."""
    schedule.expect_pass(BackfillForecast(**pass_), at_s, lead_s)
    return schedule


SLOW = 2.0  # seconds for an answer
GONE, ANNOUNCED = NoteKind.GONE, NoteKind.ANNOUNCED
AT_12 = {"due_s": 12.0, "until_s": 12.0, "sure_s": 12.0}
AT_20 = {"due_s": 20.0, "until_s": 20.0, "sure_s": 20.0}


@cases(
    "schedule, due_s",
    slowly_by_itself=(looking(), 15),
    slowly_after_some_elements_were_let_go=(grew(looking(), 15), 15),
    soon_after_many_were=(grew(looking(), 16), 2),
    less_often_where_slurmctld_is_slow=(looking(took_s=SLOW), 60),
    also_after_a_hint=(hinted(looking(took_s=SLOW), GONE, 1), 6),
    soon_after_an_element_has_said_something=(hinted(looking(), GONE, 5), 5.15),
    but_in_a_minute_however_slow_it_is=(looking(took_s=50), 60),
    as_ever_once_it_is_quick_again=(looked(looking(took_s=SLOW), 60), 75),
    as_if_it_were_quick_in_its_first_minute=(looked(began(1000), 1040, took_s=SLOW), 1055),
    and_then_not=(looked(began(1000), 1061, took_s=SLOW), 1121),
    sooner_before_a_pass_where_ends_take_long=(expecting(looking(), 0, lead_s(7.0), **AT_12), 4),
    in_time_before_the_pass_after_one_that_may_just_have_been=(
        expecting(looking(15.5), 15.5, lead_s(7.0), **AT_12, then_s=32.0), 24
    ),
    often_while_a_pass_may_begin_at_any_moment=(expecting(looking(20), 20, until_s=30.0), 23),
    as_ever_once_it_may_not=(expecting(looking(30), 30, until_s=30.0), 45),
    as_a_pass_may_after_a_submission=(hinted(expecting(looking(), 0, **AT_20), ANNOUNCED, 5), 15),
    at_once_where_it_may_begin_now=(
        hinted(expecting(looking(15), 15, **{**AT_20, "sure_s": 16.0}), ANNOUNCED, 15.6), 15.6
    ),
    at_once_where_jobs_start_as_they_come=(
        hinted(expecting(looking(), 0, **AT_20), ANNOUNCED, 5, as_they_come=True), 5
    ),
)  # fmt: skip
def test_it_looks(schedule: Schedule, due_s: float) -> None:
    assert schedule.due_s() == due_s


def test_it_looks_before_and_after_a_backfill_pass() -> None:
    schedule, looks, now_s = began(), list[float](), 0.0
    for _ in range(6):
        looked(schedule, now_s)
        looks.append(now_s := expecting(schedule, now_s, **AT_12).due_s())
    assert looks == pytest.approx([9.0, 10.0, 11.0, 13.2, 15.0, 30.0])


def flooded(schedule: Schedule, seconds: int) -> int:
    """How often it looks while it hears something all the time."""
    looks = 0
    for tenth in range(10 * seconds):
        if hinted(schedule, NoteKind.SUBMITTED, tenth / 10).is_due(tenth / 10):
            looked(schedule, tenth / 10)
            looks += 1
    return looks


def test_whoever_floods_it_with_hints_makes_it_look_a_few_times_a_minute_at_most() -> None:
    assert flooded(began(0), 600) < 20 + 600 / 2.5


def test_after_a_quiet_time_hints_are_heard_at_once_again() -> None:
    schedule = began(0)
    flooded(schedule, 100)
    for quarter in range(8):
        looked(schedule, 115.0 + 15 * quarter)
    assert hinted(schedule, NoteKind.SUBMITTED, 230.0).due_s() == 230.0


def test_looks_that_no_hint_has_brought_hold_up_later_hints_for_a_moment_only() -> None:
    schedule = began(0)
    for second in (*range(300), 314):  # there was more to do each time
        looked(schedule, float(second))
    assert hinted(schedule, NoteKind.SUBMITTED, 320.0).due_s() == 320.0


@pytest.mark.parametrize("answers", [False, True], ids=["no answer", "a turn fails after a look"])
def test_it_asks_less_and_less_often_where_something_fails_whatever_is_heard(answers: bool) -> None:
    schedule, gaps = began(0), list[float]()
    for _ in range(8):
        if answers:
            looked(schedule, 0.0)
        schedule.failed(0.0)
        gaps.append(hinted(schedule, NoteKind.SUBMITTED, 0.0).due_s())
    assert gaps == [2, 4, 8, 16, 32, 60, 60, 60]
    schedule.succeeded()
    schedule.failed(0.0)
    assert schedule.due_s() == 2


def test_how_slowly_a_slow_slurmctld_is_asked_can_be_said_until_it_is_quick_again() -> None:
    schedule = looking(took_s=SLOW)
    assert (schedule.slowed_to_s, looked(schedule, 60.0).slowed_to_s) == (60, None)


def test_it_goes_on_where_elements_do_not_end_or_slurm_does_not_answer_for_days() -> None:
    ends, fails = began(), began()
    for number in range(2000):
        looked(ends, 15.0 * number, ending=True)
        fails.failed(60.0 * number)
    assert (ends.due_s(), fails.due_s()) == (15.0 * 2000, 60.0 * 2000)
