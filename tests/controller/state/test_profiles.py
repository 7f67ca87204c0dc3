"""What trainers' reports say about their throughput, and what plans are made with.

What was learnt is kept by user and job name, and does not grow without bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.observe.reports import Report
from bftrainer_slurm.controller.publish.status import trainer_status
from bftrainer_slurm.controller.state import measurements as measurements_module
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.member_notes import measure
from bftrainer_slurm.controller.state.profiles import (
    PRIOR_COSTS,
    BatchNoise,
    PerformanceModel,
    ReportedState,
    reported_before,
)
from bftrainer_slurm.controller.state.statistics import Totals
from bftrainer_slurm.controller.state.stopwatch import Stopwatch, Throughput
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ThroughputCurve, Trainer
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import ARRAY, NOW_S, cases, trainer, view_of

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


def reports(
    begin_s: float,
    seconds: int,
    generation: int = 1,
    nodes: int = 2,
    rate: float | None = 100.0,
    steps: float | None = None,
    noise: float | None = None,
) -> Iterator[Report]:
    """One every second, from 0 on; so many samples and steps a second."""
    for second in range(seconds + 1):
        counts = (None if each is None else each * second for each in (rate, steps))
        about = {"nodes": nodes, "generation": generation}
        yield Report(begin_s + second, *counts, **about, noise=noise)  # type: ignore[arg-type]


def looks_of(watch: Stopwatch, *when: int, **how: Any) -> list[Throughput]:
    """What it measures of these reports."""
    return [look for one in reports(*when, **how) if (look := watch.report(one))]


def test_looks_are_samples_over_seconds_and_grow_as_long_as_a_generation_lasts() -> None:
    looks = looks_of(Stopwatch(ARRAY), 0, 400)
    assert looks[0] == Throughput(ARRAY, "samples", 2, 35.0, 100.0, 20.0)
    assert [look.seconds for look in looks] == [20, 20, 40, 80, 80, 80]


def test_the_warm_up_after_a_change_is_in_no_look() -> None:
    watch = Stopwatch(ARRAY)
    watch.report(Report(0.0, samples=0.0, nodes=2, generation=1))
    watch.report(Report(4.0, samples=1.0, nodes=2, generation=1))  # slow, while it compiles
    assert [look.rate for look in looks_of(watch, 5, 40)] == [100.0]


@cases(
    "first_s, then, looks",
    is_over_two_generations=(22, (22, 24, 2, 3), []),
    but_the_last_one_of_a_generation_if_it_was_long_enough=(27, (28, 1, 2, 3), [(2, 12.0)]),
    is_over_a_count_that_falls=(30, (31, 19), []),
)
def test_no_look(first_s: int, then: tuple[int, ...], looks: list[tuple[int, float]]) -> None:
    watch = Stopwatch(ARRAY)
    looks_of(watch, 0, first_s)
    assert [(look.nodes, look.seconds) for look in looks_of(watch, *then)] == looks


def test_where_samples_are_not_known_steps_times_nodes_stand_for_them() -> None:
    looks = looks_of(Stopwatch(ARRAY), 0, 35, nodes=3, rate=None, steps=10.0)
    assert [(look.unit, look.rate) for look in looks] == [("steps", 30.0)]


@pytest.mark.parametrize("rate", [0.0, 1e12], ids=["who stands still", "what cannot be"])
def test_nothing_is_measured_of(rate: float) -> None:
    assert looks_of(Stopwatch(ARRAY), 0, 100, rate=rate) == []


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


MOST = 16


def view(array: int = 1, nodes: int = 4, name: str = "digits", user: str = "alice") -> TrainerView:
    """A trainer on so many nodes."""
    of = trainer(*(f"running n{array}-{task}" for task in range(nodes)), array=array)
    return view_of(replace(of, name=name, user=user, record=TrainerRecord(1, MOST)))


class Profiles(PerformanceModel):
    """A model, and the records of the trainers that it knows."""

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self.records: dict[int, ReportedState] = {}
        super().__init__(self.of)

    def of(self, of: Trainer) -> ReportedState:
        """What a trainer has reported."""
        if of.array not in self.records:
            self.records[of.array] = reported_before(self.measurements, of)
        return self.records[of.array]

    def progressed(self, one: TrainerView, report: Report) -> None:
        """It reports progress."""
        measure(self.measurements, one, self.of(one.trainer), report)

    def shown(self, one: TrainerView) -> Any:
        """What users see of it."""
        about = self.of(one.trainer), None, self.costs(one, NOW_S), None, None, None
        return trainer_status(one, Totals(), *about, NOW_S)


def train(
    profiles: Profiles,
    one: TrainerView,
    rate: float | None,
    begin_s: float = NOW_S,
    seconds: int = 120,
    generation: int = 1,
    **more: float,
) -> None:
    """It makes so many samples a second."""
    for report in reports(begin_s, seconds, generation, len(one.placed), rate, **more):
        profiles.progressed(one, report)


def curve(profiles: Profiles, one: TrainerView) -> ThroughputCurve:
    return profiles.estimates([one], NOW_S)[0].curve


def test_what_was_learnt_is_for_the_next_of_that_name_until_another_script_shows_itself() -> None:
    measurements = made()
    old, first = Profiles(measurements), view(array=1, nodes=4)
    train(old, first, 400.0)
    train(old, view(array=1, nodes=8), 410.0, NOW_S + 200, generation=2)  # hardly scales
    kept = measurements.throughputs(JOB)
    train(Profiles(measurements), first, 400.0)  # the keeper's old notes, to the next controller
    assert measurements.throughputs(JOB) == kept
    profiles, one = Profiles(measurements), view(array=2, nodes=4)
    assert curve(profiles, one).at(8) < 450
    unknown = curve(profiles, view(array=3, user="bob"))
    assert (unknown.at(1), 5 < unknown.at(8) < 8) == (1.0, True), "as if it scaled well"
    train(profiles, one, 40.0, NOW_S + 1000)
    assert curve(profiles, one).at(4) == pytest.approx(40, rel=0.05)
    assert curve(profiles, one).at(8) > 60


def test_noise_changes_no_curve() -> None:
    profiles, one = Profiles(made()), view()
    train(profiles, one, 400.0, seconds=400)
    before = curve(profiles, one)
    train(profiles, one, 420.0, NOW_S + 400, seconds=60)
    assert curve(profiles, one) == before


def test_trainers_that_only_count_steps_are_planned_in_the_unit_of_the_others() -> None:
    profiles = Profiles(made())
    known, relative = view(array=1, name="known"), view(array=2, name="relative")
    train(profiles, known, 40_000.0)
    train(profiles, relative, None, steps=2.0)
    curves = [one.curve for one in profiles.estimates([known, relative], NOW_S)]
    assert curves[1].at(4) == pytest.approx(curves[0].at(4), rel=0.2)


@pytest.mark.parametrize("rates", [(1e-9, 1e9), (1e9, 1e-9), (1e9, 1e9)])
def test_a_liar_gains_no_more_than_what_is_possible(rates: tuple[float, float]) -> None:
    profiles = Profiles(made())
    honest, liar = view(array=1, name="honest"), view(array=2, nodes=1, name="liar")
    train(profiles, honest, 400.0)
    train(profiles, liar, rates[0])
    grown = view(array=2, nodes=4, name="liar")
    train(profiles, grown, rates[1], NOW_S + 200, generation=2)
    unknown = view(array=3, nodes=0, name="unknown")
    mine, its, none = (one.curve for one in profiles.estimates([honest, grown, unknown], NOW_S))
    assert mine.at(4) == pytest.approx(400, rel=0.05)
    assert all(map(math.isfinite, its.values))
    assert all(its.at(nodes) <= 1.3 * nodes * its.at(1) for nodes in range(1, MOST + 1))
    assert none.at(1) > 0


PRIOR_S = PRIOR_COSTS.up_s  # as much as for a trainer that shrinks


@cases(
    "measured_s, later_s, costs_s",
    what_the_prior_says_at_first=([], 0, PRIOR_S),
    what_was_measured_by_and_by=([1.0, 1.2, 60.0], 0, 1.0),
    not_what_one_rescale_that_hung_took=([17.0], 0, PRIOR_S),
    not_that_of_three=([17.0, 0.4, 0.5], 0, 0.4),
    what_happens_again_and_again=([17.0] * 3, 0, 17.0),
    for_some_minutes=([17.0] * 3, 599, 17.0),
    then_another_is_tried=([17.0] * 3, 1200, PRIOR_S),
    for_hours_where_it_was_so_nine_times=([17.0] * 9, 3600, 17.0),
    then_that_is_forgotten_too=([17.0] * 9, 5 * 3600, PRIOR_S),
    no_more_than_two_minutes_whatever_one_tells=([3600.0] * 9, 0, 120),
)
def test_a_change_is_believed_to_cost(
    measured_s: list[float], later_s: float, costs_s: float
) -> None:
    for grew in (True, False):
        measurements = made()
        for seconds in measured_s:
            measurements.add_pause(JOB, 7, NOW_S, 2, seconds, grew)
        costs = Profiles(measurements).costs(view(), NOW_S + later_s)
        assert (costs.up_s, costs.down_s) == ((costs_s, PRIOR_S) if grew else (PRIOR_S, costs_s))


@cases(
    "reports, costs",
    of_growing=([(1, 2, None), (2, 3, 0.25), (2, 3, 0.25)], [(True, 0.25)]),
    of_shrinking=([(1, 3, None), (2, 1, 0.5)], [(False, 0.5)]),
    not_of_a_start_nor_of_a_change_of_nodes_for_others=([(1, 2, 0.9), (2, 2, 0.9)], []),
    not_by_a_word_from_before_it=([(1, 2, 0.9), (1, 2, 0.9), (2, 3, 0.25)], [(True, 0.25)]),
    since_the_last_generation_that_made_progress=([(1, 2, None), (3, 3, 0.5)], [(True, 0.5)]),
)  # fmt: skip
def test_the_pause_before_progress_on_other_nodes_is_the_cost(
    reports: list[tuple[int, int, float | None]], costs: list[tuple[bool, float]]
) -> None:
    """By reports a second apart: generation, nodes, pause before it."""
    measurements = made()
    profiles = Profiles(measurements)
    for _ in range(2):  # the second time as a keeper's old notes
        for number, (generation, nodes, pause_s) in enumerate(reports):
            report = Report(NOW_S + number, samples=9.0 * number, nodes=nodes, pause_s=pause_s)
            profiles.progressed(view(nodes=nodes), replace(report, generation=generation))
    assert [(one.grew, one.seconds) for one in measurements.rescales(JOB)] == costs


def test_who_does_not_say_on_how_many_nodes_was_on_those_that_slurm_knows() -> None:
    profiles, one = Profiles(made()), view(nodes=4)
    for second in range(60):
        profiles.progressed(one, Report(NOW_S + second, samples=50.0 * second))
    assert {known.nodes for known in profiles.of(one.trainer).own} == {4}


def test_what_is_known_says_what_was_measured_and_in_which_unit() -> None:
    profiles, one = Profiles(made()), view()
    nothing = profiles.shown(one)
    assert nothing["curve"]["unit"] is None
    assert nothing["rescale"]["up"] == {"seconds": 0.3, "count": 0}
    train(profiles, one, 400.0)
    points = {point["nodes"]: point for point in profiles.shown(one)["curve"]["points"]}
    assert profiles.shown(one)["curve"]["unit"] == "samples"
    assert [size for size, point in points.items() if point["measured"]] == [4]
    assert points[4]["rate"] == pytest.approx(400, rel=0.05)


def test_old_looks_in_samples_do_not_mix_with_new_ones_in_steps() -> None:
    measurements = made()
    measurements.set_curve(JOB, [Throughput(9, "samples", 8, NOW_S - 100, 4e5, 60.0)])
    profiles, one = Profiles(measurements), view()
    train(profiles, one, None, steps=2.0)
    assert profiles.shown(one)["curve"]["unit"] == "steps"
    assert curve(profiles, one).at(MOST) < 200


@pytest.mark.parametrize(
    ("batches", "batch_of_node"),
    [({4: 256.0}, 64.0), ({1: 64.0, 4: 256.0}, 64.0), ({1: 256.0, 4: 256.0}, 0.0)],
)
def test_what_a_step_has_of_each_node_is_learnt(
    batches: dict[int, float], batch_of_node: float
) -> None:
    profiles = Profiles(made())
    for turn, (nodes, batch) in enumerate(batches.items()):
        one, begin_s = view(nodes=nodes), NOW_S + 100 * turn
        train(profiles, one, 2 * batch, begin_s, 60, nodes, steps=2.0, noise=1000.0)
    known = profiles.of(one.trainer)
    assert known.noise(given=4000.0) == BatchNoise(4000.0, batch_of_node, given=True)
    assert known.noise(given=None) == BatchNoise(1000.0, batch_of_node, given=False)
    expected = 1000.0 / batch_of_node if batch_of_node else math.inf
    assert profiles.estimates([one], NOW_S)[0].noise == expected
    of_the_next = Profiles(profiles.measurements).of(view(array=2).trainer)
    assert of_the_next.noise(None) == known.noise(None)


def test_without_samples_of_a_step_a_noise_scale_is_of_no_use() -> None:
    profiles, one = Profiles(made()), view()
    train(profiles, one, 400.0)
    assert profiles.of(one.trainer).noise(4000.0) is None
    assert profiles.estimates([one], NOW_S)[0].noise == math.inf
