"""What a trainer's reports say about its throughput, and what the next one of its name is told.

What was learnt is kept by user and job name, and does not grow without bound.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.observe.reports import Report
from bftrainer_slurm.controller.state import measurements as measurements_module
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.stopwatch import Stopwatch, Throughput
from tests.controller.worlds import ARRAY, NOW_S, cases

JOB = Job("alice", "digits")


def look(number: int, array: int = ARRAY, nodes: int = 2) -> Throughput:
    return Throughput(array, "samples", nodes, NOW_S + number, 100.0 + number, 40.0)


def made() -> Measurements:
    return Measurements(History(":memory:"))


def test_of_a_size_the_median_of_what_the_last_trainer_has_shown_is_kept() -> None:
    measurements = made()
    measurements.set_curve(JOB, [look(50, array=9)])
    measurements.set_curve(JOB, [look(60, array=9, nodes=4)])
    measurements.set_curve(JOB, [look(0), look(1), look(98)])
    kept = {(one.nodes, one.array, one.rate) for one in measurements.throughputs(JOB)}
    assert kept == {(2, ARRAY, 101.0), (4, 9, 160.0)}
    assert [one.seconds for one in measurements.throughputs(JOB) if one.nodes == 2] == [40.0] * 3


def test_what_was_measured_for_too_short_a_time_to_be_believed_replaces_nothing() -> None:
    measurements = made()
    measurements.set_curve(JOB, [look(1)])
    measurements.set_curve(JOB, [replace(look(2), seconds=20.0)])
    assert measurements.throughputs(JOB) == [look(1)]


def test_what_was_learnt_in_the_future_waits_for_it_and_is_in_nobodys_way() -> None:
    now_s = NOW_S
    measurements = Measurements(History(":memory:", lambda: now_s))
    measurements.set_curve(JOB, [look(7200, nodes=4)])  # the clock was wrong at first
    measurements.set_curve(JOB, [look(0)])
    for ahead_s in (7200, 0):
        for number in range(ahead_s, ahead_s + 6):
            measurements.add_pause(JOB, ARRAY, NOW_S + number, 2, 0.1, True)
    assert measurements.throughputs(JOB) == [look(0)]
    assert [one.time_s - NOW_S for one in measurements.rescales(JOB)] == list(range(6))
    now_s += 7300
    assert len(measurements.throughputs(JOB)) == 2


def test_of_a_name_the_latest_sizes_are_kept() -> None:
    measurements = made()
    for number in range(600):
        measurements.set_curve(JOB, [look(number, nodes=number + 1)])
    assert [one.nodes for one in measurements.throughputs(JOB)] == list(range(345, 601))


def test_a_user_cannot_fill_the_disk_with_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements_module, "_SIZES_A_USER", 100)
    measurements = made()
    for number in range(150):
        measurements.set_curve(Job("alice", f"digits-{number}"), [look(number, number)])
    names = ((number, Job("alice", f"digits-{number}")) for number in range(150))
    left = [number for number, job in names if measurements.throughputs(job)]
    assert left == list(range(50, 150))


def test_of_rescales_the_latest_nine_of_a_kind_count() -> None:
    history = History(":memory:")
    measurements = Measurements(history)
    for number in range(20):
        for grew, seconds in ((True, 1.0), (False, 2.0), (None, 9.0)):
            measurements.add_pause(JOB, ARRAY, NOW_S + number, 2, seconds, grew)
    kept = [one for one in measurements.rescales(JOB) if one.grew]
    assert [one.time_s - NOW_S for one in kept] == list(range(11, 20))
    assert len(measurements.rescales(JOB)) == 18
    pauses = history.counts.pauses
    assert (pauses["up"].sum_s, pauses["down"].sum_s) == (20.0, 40.0)


def training(
    watch: Stopwatch,
    begin_s: float,
    seconds: int,
    generation: int = 1,
    nodes: int = 2,
    rate: float | None = 100.0,
    steps: float | None = None,
) -> list[Throughput]:
    """Report every second, from 0 samples on."""
    about = {"nodes": nodes, "generation": generation}
    reports = (
        Report(
            begin_s + second,
            None if rate is None else rate * second,
            None if steps is None else steps * second,
            **about,
        )
        for second in range(seconds + 1)
    )
    return [look for one in reports if (look := watch.report(one))]


def test_looks_are_samples_over_seconds_and_grow_as_long_as_a_generation_lasts() -> None:
    looks = training(Stopwatch(ARRAY), 0, 400)
    assert looks[0] == Throughput(ARRAY, "samples", 2, 35.0, 100.0, 20.0)
    assert [look.seconds for look in looks] == [20, 20, 40, 80, 80, 80]


def test_the_warm_up_after_a_change_is_in_no_look() -> None:
    watch = Stopwatch(ARRAY)
    watch.report(Report(0.0, samples=0.0, nodes=2, generation=1))
    watch.report(Report(4.0, samples=1.0, nodes=2, generation=1))  # slow, while it compiles
    assert [look.rate for look in training(watch, 5, 40)] == [100.0]


@cases(
    "first_s, then, looks",
    is_over_two_generations=(22, (22, 24, 2, 3), []),
    but_the_last_one_of_a_generation_if_it_was_long_enough=(27, (28, 1, 2, 3), [(2, 12.0)]),
    is_over_a_count_that_falls=(30, (31, 19), []),
)
def test_no_look(first_s: int, then: tuple[int, ...], looks: list[tuple[int, float]]) -> None:
    watch = Stopwatch(ARRAY)
    training(watch, 0, first_s)
    assert [(look.nodes, look.seconds) for look in training(watch, *then)] == looks


def test_where_samples_are_not_known_steps_times_nodes_stand_for_them() -> None:
    looks = training(Stopwatch(ARRAY), 0, 35, nodes=3, rate=None, steps=10.0)
    assert [(look.unit, look.rate) for look in looks] == [("steps", 30.0)]


@pytest.mark.parametrize("rate", [0.0, 1e12], ids=["who stands still", "what cannot be"])
def test_nothing_is_measured_of(rate: float) -> None:
    assert training(Stopwatch(ARRAY), 0, 100, rate=rate) == []


amounts = st.one_of(st.none(), st.floats(0, 1e15))


@given(
    st.lists(
        st.builds(
            Report,
            st.floats(0, 1e9),
            samples=amounts,
            steps=amounts,
            nodes=st.one_of(st.none(), st.integers(1, 64)),
            generation=st.one_of(st.none(), st.integers(0, 3)),
        ),
        max_size=60,
    )
)
def test_whatever_is_reported_looks_are_possible_ones(reports: list[Report]) -> None:
    watch = Stopwatch(ARRAY)
    for report in reports:
        look = watch.report(report)
        assert look is None or 0 < look.rate <= 1e9 * look.nodes
        assert look is None or look.seconds >= 10
