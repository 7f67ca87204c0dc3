"""Where a trainer's time went, and what a change of nodes loses, as its members tell.

The sums of its allocations are in one row, which changes when one ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.observe.reports import MOST_S, Loss, Report, Work, add_report
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.statistics import Totals, goodput
from bftrainer_slurm.model import ElementId
from tests.controller.worlds import ARRAY, NOW_S, cases

SUBMIT_S = 1000.0


def after(*reports: Report, before: Work | None = None, there_s: float = SUBMIT_S) -> Work:
    for report in reports:
        before = add_report(before, report, SUBMIT_S, there_s)
    assert before is not None
    return before


def report(time_s: float, generation: int = 1, pause_s: float | None = None) -> Report:
    return Report(time_s, steps=1, generation=generation, pause_s=pause_s)


@cases(
    "reports, trained_s, rescaling_s",
    between_two_reports_of_a_generation=([report(1010), report(1020), report(1050)], 40, 0),
    not_in_the_pause_before_a_generation=(
        [report(1010), report(1020), report(1023, 2, 0.5), report(1024, 2, 0.5)], 13.5, 0.5
    ),
    not_while_it_trained_something_again=(
        [report(1010), report(1020), replace(report(1023, 2, 2.5), again_s=2.0)], 10.5, 0.5
    ),
    not_before_the_next_report_where_nobody_lived_on=([report(1010), report(1100, 2)], 0, 0),
)  # fmt: skip
def test_a_trainer_has_trained(reports: list[Report], trained_s: float, rescaling_s: float) -> None:
    work = after(*reports)
    assert (work.trained_s, work.rescaling_s) == (trained_s, rescaling_s)


@pytest.mark.parametrize("again", [report(1100), report(1100, 2, 80.0)])
def test_what_lies_before_the_present_nodes_came_was_not_trained(again: Report) -> None:
    work = after(again, before=after(report(1010), report(1020)), there_s=1090)
    assert (work.trained_s, work.rescaling_s, work.time_s) == (10, 0, 1100)


def test_what_the_keeper_tells_again_counts_once() -> None:
    told = (report(1010), report(1020), report(1030))
    assert after(*told, before=after(*told)) == after(*told)


def spent(
    work: Work | None, totals: Totals, ended: bool = False, now_s: float = 1100
) -> dict[str, float | None]:
    return goodput(work, totals, SUBMIT_S, ended=ended, now_s=now_s)


def test_of_who_reports_nothing_only_its_nodes_are_known_and_after_its_end_no_wait() -> None:
    had = Totals(with_nodes_s=20, first_s=1010, last_s=1030)
    found = spent(None, had)
    assert (found["trained_s"], found["waiting_s"], found["with_nodes_s"]) == (None, 80, 20)
    assert spent(None, had, ended=True)["waiting_s"] == 10


def test_a_requeue_of_all_elements_does_not_make_a_trainer_younger() -> None:
    assert spent(Work(900, 1095), Totals())["waiting_s"] == 200


TIMES = st.floats(0, 100, allow_nan=False)


@given(st.tuples(TIMES, TIMES, TIMES).map(sorted), TIMES, TIMES)
def test_the_parts_are_all_of_the_time(
    had: list[float], trained_s: float, rescaling_s: float
) -> None:
    with_nodes_s, first_s, last_s = had[1] - had[0], SUBMIT_S + had[0], SUBMIT_S + had[2]
    totals = Totals(with_nodes_s=with_nodes_s, first_s=first_s, last_s=last_s)
    found = spent(Work(SUBMIT_S, 1099, trained_s, rescaling_s), totals)
    parts = [found[name] for name in ("trained_s", "waiting_s", "rescaling_s", "lost_s")]
    assert all(part is not None and part >= -1e-6 for part in parts)
    assert sum(part or 0.0 for part in parts) == pytest.approx(100)


# A report: time, generation, how often it began at step 0 again, seconds since its checkpoint.
Told: TypeAlias = tuple[float, int, int | None, float | None]
FIRST_LIFE: list[Told] = [(0, 1, None, None), (50, 1, None, None)]
SAVED_BEFORE: list[Told] = [(0, 1, 0, None), (50, 1, 0, 20)]


@cases(
    "told, lost_s, thrown_s",  # what a change now would lose, what was thrown away so far
    in_its_first_start=(FIRST_LIFE, 0, 0),
    once_anew=([*FIRST_LIFE, (60, 2, 1, None)], 0, 50),
    twice_anew=(
        [*FIRST_LIFE, (60, 2, 1, None), (90, 2, 1, None), (100, 3, 2, None), (140, 3, 2, None)],
        40, 50 + 30,
    ),
    where_a_new_first_node_cannot_tell=(
        [(0, 1, 2, None), (50, 1, 2, None), (60, 2, None, None), (70, 2, None, None)], 10, 50
    ),
    twice_anew_as_two_nodes_saw_it_once_each=(
        [(0, 1, 1, None), (50, 1, 1, None), (60, 2, 1, None), (70, 2, 1, None)], 10, 50
    ),
    as_it_resumes=([(0, 1, 2, None), (50, 1, 2, None), (60, 2, 0, None), (90, 2, 0, None)], 0, 0),
    where_it_resumes_and_anew_again=(
        [(0, 1, 2, None), (60, 2, 0, None), (90, 2, 0, None), (99, 3, 1, None), (120, 3, 1, None)],
        0, 30,
    ),
    since_its_checkpoint=(SAVED_BEFORE, 20, 0),
    back_to_its_checkpoint=([*SAVED_BEFORE, (60, 2, 0, None), (90, 2, 0, 30)], 30, 20),
    where_it_claims_more_than_it_trained=([(0, 1, 0, 999), (50, 1, 0, 999)], 50, 0),
    where_it_claims_to_be_anew_for_years=(
        [(0, 1, 99, None), (9e6, 1, 99, None), (9e6 + 1, 1, 99, None)], MOST_S, 0
    ),
)  # fmt: skip
def test_what_a_change_loses(told: list[Told], lost_s: float, thrown_s: float) -> None:
    work: Work | None = None
    for time_s, generation, from_start, unsaved_s in told:
        pause_s = 10.0 if work and generation != work.generation else None
        told_last = {"pause_s": pause_s, "from_start": from_start, "unsaved_s": unsaved_s}
        report = Report(time_s, steps=1, generation=generation, **told_last)  # type: ignore[arg-type]
        work = add_report(work, report, 0.0, -1.0)
    assert work is not None
    assert (work.loss.seconds, work.again_s) == (lost_s, thrown_s)


def test_steps_with_numbers_are_told_as_trained_again_once() -> None:
    work = add_report(None, Report(0.0, steps=1, generation=1), 0.0, -1.0)
    work = add_report(work, Report(50.0, steps=9, generation=1), 0.0, -1.0)
    again = Report(100.0, steps=10, generation=2, pause_s=45.0, again_s=40.0, from_start=1)
    work = add_report(work, again, 0.0, -1.0)
    assert (work.trained_s, work.rescaling_s, work.again_s) == (55, 5, 40)


def test_who_goes_on_in_memory_loses_nothing() -> None:
    assert Loss(present_s=500.0).seconds == 0.0


EVENTS = st.tuples(
    st.integers(0, 2),  # task
    st.integers(0, 9),  # seconds since the last event
    st.sampled_from(["begins", "shrank", "reclaimed", "ended"]),
    st.integers(0, 2),  # GPUs
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_they_are_those_of_all_allocations_whenever_they_are_read(
    events: list[tuple[int, int, str, int]],
) -> None:
    history, now_s = History(":memory:"), NOW_S
    open_: dict[int, tuple[float, int]] = {}
    ended: list[tuple[float, float, int, str]] = []
    for task, after_s, what, gpus in events:
        now_s += after_s
        if what == "begins":
            history.begin_allocation(ElementId(ARRAY, task), "n1", now_s, gpus, 8)
            open_.setdefault(task, (now_s, gpus))
        else:
            history.end_allocation(ElementId(ARRAY, task), now_s, what)
            if task in open_:
                start_s, had = open_.pop(task)
                ended.append((start_s, now_s, had, what))
        spans = [*ended, *((start_s, now_s, had, "") for start_s, had in open_.values())]
        ways = Counter(how for *_, how in spans)
        seconds = {one for start_s, end_s, *_ in spans for one in range(int(start_s), int(end_s))}
        firsts, lasts = [one[0] for one in spans], [one[1] for one in ended]
        assert history.totals(ARRAY, now_s) == Totals(
            *(len(spans), ways["shrank"], ways["reclaimed"], ways["ended"]),
            node_s=sum((had / 8 or 1) * (end_s - start_s) for start_s, end_s, had, _ in spans),
            gpu_s=sum((had or 8) * (end_s - start_s) for start_s, end_s, had, _ in spans),
            with_nodes_s=len(seconds),
            first_s=min(firsts, default=None),
            last_s=None if open_ else max(lasts, default=None),
        )


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
    history = History(":memory:")
    for task, start_s in ((0, NOW_S), (1, NOW_S - 50)):
        history.begin_allocation(ElementId(ARRAY, task), "n1", start_s)
        history.end_allocation(ElementId(ARRAY, task), start_s - 10, "ended")
    had = history.totals(ARRAY, NOW_S - 100)
    assert (had.grew, had.node_s, had.with_nodes_s) == (2, 0.0, 0.0)
