"""Where a trainer's time went."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.observe.reports import Report
from bftrainer_slurm.controller.state.goodput import Served, Work, goodput, served, worked

SUBMIT_S = 1000.0


def after(*reports: Report, before: Work | None = None, there_s: float = SUBMIT_S) -> Work:
    for report in reports:
        before = worked(before, report, SUBMIT_S, there_s)
    assert before is not None
    return before


def report(time_s: float, generation: int = 1, pause_s: float | None = None) -> Report:
    return Report(time_s, steps=1, generation=generation, pause_s=pause_s)


def test_between_two_reports_of_a_generation_a_trainer_has_trained() -> None:
    assert after(report(1010), report(1020), report(1050)).trained_s == 40


def test_the_pause_before_a_generation_was_spent_rescaling() -> None:
    work = after(report(1010), report(1020), report(1023, 2, 0.5), report(1024, 2, 0.5))
    assert (work.trained_s, work.rescaling_s) == (13.5, 0.5)


def test_what_a_trainer_trained_again_was_neither() -> None:
    again = replace(report(1023, 2, 2.5), again_s=2.0)
    work = after(report(1010), report(1020), again)
    assert (work.trained_s, work.rescaling_s) == (10.5, 0.5)


def test_where_nobody_lived_through_a_change_the_time_until_the_next_report_is_neither() -> None:
    work = after(report(1010), report(1100, 2))
    assert (work.trained_s, work.rescaling_s) == (0, 0)


@pytest.mark.parametrize("again", [report(1100), report(1100, 2, 80.0)])
def test_what_lies_before_the_present_nodes_came_was_not_trained(again: Report) -> None:
    work = after(again, before=after(report(1010), report(1020)), there_s=1090)
    assert (work.trained_s, work.rescaling_s, work.time_s) == (10, 0, 1100)


def test_what_the_keeper_tells_again_counts_once() -> None:
    told = (report(1010), report(1020), report(1030))
    assert after(*told, before=after(*told)) == after(*told)


def test_nodes_that_a_trainer_has_at_the_same_time_count_once() -> None:
    assert served([(0, 10), (5, 20), (30, 40)]) == Served(30, None, 0, 40)
    assert served([(0, 10), (5, None), (7, 8)]) == Served(0, 0, 0, 10)
    assert served([(0, 10), (20, None)]) == Served(10, 20, 0, 10)
    assert served([]) == Served()


def spent(
    work: Work | None, had: Served, ended: bool = False, now_s: float = 1100
) -> dict[str, float | None]:
    return goodput(work, had, SUBMIT_S, ended=ended, now_s=now_s)


def test_the_rest_of_the_time_with_nodes_is_lost() -> None:
    work = Work(SUBMIT_S, 1095, trained_s=70, rescaling_s=2)
    assert spent(work, Served(20, 1040, 1010, 1030)) == {
        "trained_s": 70,
        "waiting_s": 20,
        "rescaling_s": 2,
        "lost_s": 8,
        "again_s": 0,
        "with_nodes_s": 80,
    }


def test_of_who_reports_nothing_only_its_nodes_are_known() -> None:
    found = spent(None, Served(20, None, 1010, 1030))
    assert (found["trained_s"], found["waiting_s"], found["with_nodes_s"]) == (None, 80, 20)


def test_who_has_ended_waits_no_longer() -> None:
    assert spent(None, Served(20, None, 1010, 1030), ended=True)["waiting_s"] == 10


def test_a_requeue_of_all_elements_does_not_make_a_trainer_younger() -> None:
    requeued = goodput(Work(900, 1095), Served(), SUBMIT_S, ended=False, now_s=1100)
    assert requeued["waiting_s"] == 200


TIMES = st.floats(0, 100, allow_nan=False)


@given(st.lists(st.tuples(TIMES, TIMES).map(sorted)), TIMES, TIMES)
def test_the_parts_are_all_of_the_time(
    stays: list[list[float]], trained_s: float, rescaling_s: float
) -> None:
    had = served([(SUBMIT_S + begin, SUBMIT_S + end) for begin, end in stays])
    found = spent(Work(SUBMIT_S, 1099, trained_s, rescaling_s), had)
    parts = [found[name] for name in ("trained_s", "waiting_s", "rescaling_s", "lost_s")]
    assert all(part is not None and part >= -1e-6 for part in parts)
    assert sum(part or 0.0 for part in parts) == pytest.approx(100)
