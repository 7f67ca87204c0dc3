"""When the controller looks at Slurm."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.observe.schedule import LEAD_S, BackfillForecast, Schedule, lead_s
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.keeper.protocol import NoteKind

SETTINGS = Settings(queue_interval_s=15)
LONG_AGO_S = -1000.0  # when the controller began


def looked(schedule: Schedule, now_s: float, ending: bool = False, took_s: float = 0.0) -> Schedule:
    schedule.looked(now_s, also=frozenset(), ending=ending, took_s=took_s)
    return schedule


def looking(now_s: float = 0.0, took_s: float = 0.0) -> Schedule:
    """One that has looked then, long after the controller began."""
    return looked(Schedule(SETTINGS, LONG_AGO_S), now_s, took_s=took_s)


def test_it_looks_slowly_by_itself_and_soon_after_an_element_has_said_something() -> None:
    schedule = looking()
    assert schedule.due_s() == 15
    schedule.hint(NoteKind.GONE, 5.0)
    assert 5 < schedule.due_s() < 6


@pytest.mark.parametrize(("elements", "wait_s"), [(0, 15), (15, 15), (16, 2), (500, 2)])
def test_after_many_elements_were_let_go_it_looks_soon(elements: int, wait_s: float) -> None:
    schedule = looking()
    schedule.grew(elements, 0.0)
    assert schedule.due_s() == wait_s


def test_whoever_floods_it_with_hints_makes_it_look_a_few_times_a_minute_at_most() -> None:
    schedule, now_s, looks = Schedule(SETTINGS, 0.0), 0.0, 0
    while now_s < 600:
        schedule.hint(NoteKind.SUBMITTED, now_s)
        if schedule.is_due(now_s):
            looked(schedule, now_s)
            looks += 1
        now_s += 0.1
    assert looks < 20 + 600 / 2.5


def test_after_a_quiet_time_hints_are_heard_at_once_again() -> None:
    schedule = Schedule(SETTINGS, 0.0)
    for tenth in range(1000):
        schedule.hint(NoteKind.SUBMITTED, tenth / 10)
        if schedule.is_due(tenth / 10):
            looked(schedule, tenth / 10)
    for quarter in range(8):
        looked(schedule, 115.0 + 15 * quarter)
    schedule.hint(NoteKind.SUBMITTED, 230.0)
    assert schedule.due_s() == 230.0


def test_looks_that_no_hint_has_brought_hold_up_later_hints_for_a_moment_only() -> None:
    schedule = Schedule(SETTINGS, 0.0)
    for second in range(300):  # there was more to do each time
        looked(schedule, float(second))
    looked(schedule, 314.0)
    schedule.hint(NoteKind.SUBMITTED, 320.0)
    assert schedule.due_s() == 320.0


def test_where_slurm_does_not_answer_it_asks_less_and_less_often_whatever_is_heard() -> None:
    schedule = Schedule(SETTINGS, 0.0)
    gaps = []
    for _ in range(8):
        schedule.failed(0.0)
        schedule.hint(NoteKind.SUBMITTED, 0.0)
        gaps.append(schedule.due_s())
    assert gaps == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_turn_that_fails_after_each_look_is_tried_less_and_less_often_too() -> None:
    schedule = Schedule(SETTINGS, 0.0)
    gaps = []
    for _ in range(4):
        looked(schedule, 0.0)
        schedule.failed(0.0)
        gaps.append(schedule.due_s())
    schedule.succeeded()
    schedule.failed(0.0)
    assert (gaps, schedule.due_s()) == ([2, 4, 8, 16], 2)


def test_a_slow_slurmctld_is_asked_less_often() -> None:
    schedule = looking(took_s=2.0)
    assert schedule.due_s() == 60
    schedule.hint(NoteKind.GONE, 1.0)
    assert schedule.due_s() == 6


def test_for_its_first_minute_a_controller_looks_as_if_slurmctld_were_quick() -> None:
    schedule = Schedule(SETTINGS, 0.0)
    looked(schedule, 40.0, took_s=2.0)
    assert schedule.due_s() == 55
    looked(schedule, 61.0, took_s=2.0)
    assert schedule.due_s() == 121


def test_nothing_is_so_slow_that_free_nodes_wait_longer_than_a_minute() -> None:
    schedule = looking(took_s=50.0)
    assert schedule.slowed_to_s == 60
    assert schedule.due_s() == 60


def test_how_slowly_a_slow_slurmctld_is_asked_can_be_said_until_it_is_quick_again() -> None:
    schedule = looking(took_s=2.0)
    assert schedule.slowed_to_s == 60
    looked(schedule, 60.0)
    assert (schedule.slowed_to_s, schedule.due_s()) == (None, 75)


def test_it_goes_on_where_an_element_does_not_end_for_days() -> None:
    schedule = Schedule(SETTINGS, LONG_AGO_S)
    for number in range(2000):
        looked(schedule, 15.0 * number, ending=True)
    assert schedule.due_s() == 15.0 * 2000


def test_it_goes_on_where_slurm_does_not_answer_for_days() -> None:
    schedule = Schedule(SETTINGS, LONG_AGO_S)
    for number in range(2000):
        schedule.failed(60.0 * number)
    assert schedule.due_s() == 60.0 * 2000


def test_it_looks_before_and_after_a_backfill_pass() -> None:
    schedule = Schedule(SETTINGS, LONG_AGO_S)
    looks = []
    now_s = 0.0
    for _ in range(6):
        looked(schedule, now_s)
        schedule.expect_pass(BackfillForecast(12.0, 12.0, 12.0), now_s)
        looks.append(now_s := schedule.due_s())
    assert looks == pytest.approx([9.0, 10.0, 11.0, 13.2, 15.0, 30.0])


def test_where_elements_take_long_to_end_it_looks_sooner_before_a_pass() -> None:
    schedule = looking()
    schedule.expect_pass(BackfillForecast(12.0, 12.0, 12.0), 0.0, lead_s(7.0))
    assert schedule.due_s() == 4.0
    assert lead_s(0.0) == lead_s(1.0) == LEAD_S
    assert lead_s(600.0) == 15.0


def test_it_looks_in_time_before_the_pass_after_one_that_may_just_have_been() -> None:
    schedule = looking(15.5)
    schedule.expect_pass(BackfillForecast(12.0, 12.0, 12.0, then_s=32.0), 15.5, lead_s(7.0))
    assert schedule.due_s() == 24.0


def test_it_looks_often_while_a_pass_may_begin_at_any_moment() -> None:
    schedule = looking(20.0)
    schedule.expect_pass(BackfillForecast(until_s=30.0), 20.0)
    assert schedule.due_s() == 23.0
    looked(schedule, 30.0)
    schedule.expect_pass(BackfillForecast(until_s=30.0), 30.0)
    assert schedule.due_s() == 45.0


def test_a_submission_is_looked_at_where_a_pass_may_begin_and_waits_for_one_otherwise() -> None:
    schedule = looking()
    schedule.expect_pass(BackfillForecast(20.0, 20.0, 20.0), 0.0)
    schedule.hint(NoteKind.ANNOUNCED, 5.0)
    assert schedule.due_s() == 15.0
    looked(schedule, 15.0)
    schedule.expect_pass(BackfillForecast(20.0, 20.0, 16.0), 15.0)
    schedule.hint(NoteKind.ANNOUNCED, 15.6)
    assert schedule.due_s() == 15.6


def test_a_submission_is_looked_at_at_once_where_jobs_start_as_they_come() -> None:
    schedule = looking()
    schedule.expect_pass(BackfillForecast(20.0, 20.0, 20.0), 0.0)
    schedule.hint(NoteKind.ANNOUNCED, 5.0, as_they_come=True)
    assert schedule.due_s() == 5.0
