"""What was learnt is kept by user and job name, and does not grow without bound."""

from __future__ import annotations

from pathlib import Path

from bftrainer_slurm.controller.observe.reports import Reform, Runtime
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Job, Measurements, Rescale, Throughput
from tests.controller.worlds import ARRAY, NOW_S

JOB = Job("alice", "digits")


def look(number: int, array: int = ARRAY, nodes: int = 2) -> Throughput:
    return Throughput(array, "samples", nodes, NOW_S + number, 100.0 + number, 20.0)


def made() -> Measurements:
    return History(":memory:").measurements


def test_looks_are_there_for_the_next_job_of_that_user_and_name(tmp_path: Path) -> None:
    before = History(tmp_path / "history.sqlite")
    before.measurements.add_throughput(JOB, look(1))
    before.close()
    measurements = History(tmp_path / "history.sqlite").measurements
    assert measurements.throughputs(JOB) == [look(1)]
    assert (
        measurements.throughputs(Job("bob", "digits"))
        == measurements.throughputs(Job("alice", "other"))
        == []
    )


def test_of_a_size_the_latest_sixteen_looks_are_kept() -> None:
    measurements = made()
    for number in range(40):
        measurements.add_throughput(JOB, look(number))
        measurements.add_throughput(JOB, look(number, nodes=4))
    kept = [one.time_s - NOW_S for one in measurements.throughputs(JOB) if one.nodes == 2]
    assert kept == list(range(24, 40))


def test_what_was_learnt_in_the_future_waits_for_it_and_is_in_nobodys_way() -> None:
    now_s = NOW_S
    measurements = History(":memory:", lambda: now_s).measurements
    for ahead_s in (7200, 0):  # the clock was wrong at first
        for number in range(ahead_s, ahead_s + 12):
            measurements.add_throughput(JOB, look(number))
        for number in range(ahead_s, ahead_s + 6):
            measurements.add_rescale(JOB, Rescale(Runtime.AGENT, True, NOW_S + number, 0.1))
    assert [one.time_s - NOW_S for one in measurements.throughputs(JOB)] == list(range(12))
    assert [one.time_s - NOW_S for one in measurements.rescales(JOB)] == list(range(6))
    now_s += 7300
    assert len(measurements.throughputs(JOB)) == 16


def test_of_a_trainer_a_few_hundred_looks_are_kept() -> None:
    measurements = made()
    for number in range(600):
        measurements.add_throughput(JOB, look(number, nodes=number + 1))
    assert len(measurements.throughputs(JOB)) == 256


def test_of_a_name_the_latest_trainers_are_kept_and_those_that_run() -> None:
    measurements = made()
    for array in range(1, 8):
        measurements.add_throughput(JOB, look(array, array))
    measurements.forget_too_much(active={1})
    assert [one.array for one in measurements.throughputs(JOB)] == [1, 4, 5, 6, 7]


def test_a_user_cannot_fill_the_disk_with_names() -> None:
    measurements = made()
    for number in range(150):
        measurements.add_throughput(Job("alice", f"digits-{number}"), look(number, number))
    measurements.forget_too_much(active=())
    left = [
        number
        for number in range(150)
        if measurements.throughputs(Job("alice", f"digits-{number}"))
    ]
    assert left == list(range(50, 150))


def test_of_rescales_the_latest_nine_of_a_kind_are_kept() -> None:
    measurements = made()
    for number in range(20):
        for grew in (True, False):
            measurements.add_rescale(
                JOB, Rescale(Runtime.AGENT, grew, NOW_S + number, 0.1 * number)
            )
    kept = [one for one in measurements.rescales(JOB) if one.grew]
    assert [one.time_s - NOW_S for one in kept] == list(range(11, 20))
    assert len(measurements.rescales(JOB)) == 18


def test_the_generation_that_a_trainer_stands_in_is_known_after_a_restart() -> None:
    measurements = made()
    for generation in (1, 2):
        measurements.set_reform(ARRAY, Reform(NOW_S, Runtime.WORKER, generation, 3))
    assert measurements.reform(ARRAY) == Reform(NOW_S, Runtime.WORKER, 2, 3)
    assert measurements.reform(99) is None


def test_pauses_are_counted_by_whether_a_trainer_grew() -> None:
    history = History(":memory:")
    history.measurements.add_rescale(JOB, Rescale(Runtime.AGENT, True, NOW_S, 0.3))
    history.measurements.add_rescale(JOB, Rescale(Runtime.AGENT, False, NOW_S, 2.0))
    pauses = history.counts.pauses
    assert (pauses["up"].sum_s, pauses["down"].sum_s) == (0.3, 2.0)
