"""What a trainer's reports say: its throughput, and what changes of size cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.observe.reports import Reform, Report, Runtime
from bftrainer_slurm.controller.state.measurements import Rescale, Stopwatch, Throughput
from tests.controller.worlds import ARRAY


def training(
    watch: Stopwatch,
    begin_s: int,
    seconds: int,
    generation: int = 1,
    nodes: int = 2,
    rate: float | None = 100.0,
    steps: float | None = None,
    pause_s: float | None = None,
) -> tuple[list[Throughput], list[Rescale]]:
    """Report every second, from 0 samples on, after a first slow one."""
    looks, rescales = [], []
    for second in range(seconds + 1):
        report = Report(
            begin_s + second,
            samples=None if rate is None else rate * second,
            steps=None if steps is None else steps * second,
            nodes=nodes,
            generation=generation,
            pause_s=pause_s,
        )
        more, costs = watch.report(report, nodes)
        looks += more
        rescales += costs
    return looks, rescales


def reformed(watch: Stopwatch, time_s: float, generation: int, nodes: int) -> None:
    watch.reformed(Reform(time_s, Runtime.AGENT, generation, nodes))


def test_a_look_is_samples_over_seconds_on_a_number_of_nodes() -> None:
    looks, _ = training(Stopwatch(ARRAY), 0, 35)
    assert looks == [Throughput(ARRAY, "samples", 2, 35.0, 100.0, 20.0)]


def test_looks_grow_as_long_as_a_generation_lasts() -> None:
    looks, _ = training(Stopwatch(ARRAY), 0, 400)
    assert [look.seconds for look in looks] == [20, 20, 40, 80, 80, 80]


def test_the_warm_up_after_a_change_is_in_no_look() -> None:
    watch = Stopwatch(ARRAY)
    watch.report(Report(0.0, samples=0.0, nodes=2, generation=1), 2)
    watch.report(Report(4.0, samples=1.0, nodes=2, generation=1), 2)  # slow, while it compiles
    looks = [
        look
        for second in range(5, 45)
        for look in watch.report(Report(second, samples=100.0 * second, nodes=2, generation=1), 2)[
            0
        ]
    ]
    assert [look.rate for look in looks] == [100.0]


def test_no_look_is_over_two_generations() -> None:
    watch = Stopwatch(ARRAY)
    training(watch, 0, 22, generation=1, nodes=2)
    looks, _ = training(watch, 22, 24, generation=2, nodes=3)
    assert looks == []


def test_the_last_look_of_a_generation_counts_if_it_was_long_enough() -> None:
    watch = Stopwatch(ARRAY)
    training(watch, 0, 27, generation=1, nodes=2)
    looks, _ = training(watch, 28, 1, generation=2, nodes=3)
    assert [(look.nodes, look.seconds) for look in looks] == [(2, 12.0)]


def test_where_samples_are_not_known_steps_times_nodes_stand_for_them() -> None:
    looks, _ = training(Stopwatch(ARRAY), 0, 35, nodes=3, rate=None, steps=10.0)
    assert [(look.unit, look.rate) for look in looks] == [("steps", 30.0)]


def test_who_does_not_say_on_how_many_nodes_was_on_those_that_slurm_knows() -> None:
    watch = Stopwatch(ARRAY)
    found = [
        watch.report(Report(second, samples=50.0 * second), nodes=4)[0] for second in range(36)
    ]
    assert [look.nodes for looks in found for look in looks] == [4]


def test_who_stands_still_is_not_measured() -> None:
    assert training(Stopwatch(ARRAY), 0, 100, rate=0.0) == ([], [])


def test_a_count_that_falls_begins_the_look_anew() -> None:
    watch = Stopwatch(ARRAY)
    training(watch, 0, 30)
    looks, _ = training(watch, 31, 19)
    assert looks == []


def test_nobody_is_believed_a_billion_samples_a_second() -> None:
    assert training(Stopwatch(ARRAY), 0, 60, rate=1e12) == ([], [])


@pytest.mark.parametrize(("before", "after", "pause_s"), [(2, 3, 0.25), (3, 1, 0.5)])
def test_the_pause_before_progress_on_other_nodes_is_what_growing_or_shrinking_costs(
    before: int, after: int, pause_s: float
) -> None:
    watch = Stopwatch(ARRAY)
    reformed(watch, 0, 1, before)
    training(watch, 0, 10, generation=1, nodes=before)
    reformed(watch, 11, 2, after)
    _, rescales = training(watch, 12, 10, generation=2, nodes=after, pause_s=pause_s)
    assert rescales == [Rescale(Runtime.AGENT, after > before, 12.0, pause_s)]


def test_a_start_and_a_change_of_nodes_for_others_cost_nothing_of_that() -> None:
    watch = Stopwatch(ARRAY)
    for generation in (1, 2):
        reformed(watch, 20 * generation, generation, 2)
        _, rescales = training(
            watch, 20 * generation, 10, generation=generation, nodes=2, pause_s=9.0
        )
        assert rescales == []


def test_a_last_word_from_before_the_change_pays_for_nothing() -> None:
    watch = Stopwatch(ARRAY)
    reformed(watch, 0, 1, 2)
    training(watch, 0, 10, generation=1, nodes=2)
    reformed(watch, 11, 2, 3)
    _, late = training(watch, 11, 0, generation=1, nodes=2, pause_s=7.0)
    _, rescales = training(watch, 12, 1, generation=2, nodes=3, pause_s=0.25)
    assert (late, [one.seconds for one in rescales]) == ([], [0.25])


def test_a_generation_without_progress_is_no_size_to_compare_with() -> None:
    watch = Stopwatch(ARRAY)
    reformed(watch, 0, 1, 2)
    training(watch, 0, 10, generation=1, nodes=2)
    reformed(watch, 11, 2, 5)
    reformed(watch, 12, 3, 3)
    _, rescales = training(watch, 13, 1, generation=3, nodes=3, pause_s=0.5)
    assert [one.grew for one in rescales] == [True]


def test_the_agents_of_an_in_process_trainer_do_not_speak_for_it() -> None:
    watch = Stopwatch(ARRAY)
    reformed(watch, 0, 1, 1)
    watch.reformed(Reform(1.0, Runtime.WORKER, 1, 2))
    reformed(watch, 2, 2, 1)
    assert (watch.runtime, watch.formed) == (Runtime.WORKER, Reform(1.0, Runtime.WORKER, 1, 2))


def test_progress_without_a_group_of_ours_is_stock_c10ds() -> None:
    watch = Stopwatch(ARRAY)
    assert watch.runtime is None
    training(watch, 0, 1, generation=1_700_000_000)
    assert watch.runtime is Runtime.C10D


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
            pause_s=st.one_of(st.none(), st.floats(0, 3600)),
        ),
        max_size=60,
    )
)
def test_whatever_is_reported_looks_are_possible_ones(reports: list[Report]) -> None:
    watch = Stopwatch(ARRAY)

    def all_looks() -> Iterator[Throughput]:
        for report in reports:
            yield from watch.report(report, 3)[0]

    for look in all_looks():
        assert 0 < look.rate <= 1e9 * look.nodes
        assert look.seconds >= 10
