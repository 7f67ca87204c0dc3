"""What was learnt is kept by user and job name, and does not grow without bound."""

from __future__ import annotations

from pathlib import Path

from bftrainer_slurm.controller.observe.reports import Reform, Runtime
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.lessons import Job, Lessons, Look, Rescale
from tests.controller.worlds import ARRAY, NOW_S

JOB = Job("alice", "digits")


def look(number: int, array: int = ARRAY, nodes: int = 2) -> Look:
    return Look(array, "samples", nodes, NOW_S + number, 100.0 + number, 20.0)


def made() -> Lessons:
    return History(":memory:").lessons


def test_looks_are_there_for_the_next_job_of_that_user_and_name(tmp_path: Path) -> None:
    before = History(tmp_path / "history.sqlite")
    before.lessons.add_look(JOB, look(1))
    before.close()
    lessons = History(tmp_path / "history.sqlite").lessons
    assert lessons.looks(JOB) == [look(1)]
    assert lessons.looks(Job("bob", "digits")) == lessons.looks(Job("alice", "other")) == []


def test_of_a_size_the_latest_sixteen_looks_are_kept() -> None:
    lessons = made()
    for number in range(40):
        lessons.add_look(JOB, look(number))
        lessons.add_look(JOB, look(number, nodes=4))
    kept = [one.time_s - NOW_S for one in lessons.looks(JOB) if one.nodes == 2]
    assert kept == list(range(24, 40))


def test_what_was_learnt_in_the_future_waits_for_it_and_is_in_nobodys_way() -> None:
    now_s = NOW_S
    lessons = History(":memory:", lambda: now_s).lessons
    for ahead_s in (7200, 0):  # the clock was wrong at first
        for number in range(ahead_s, ahead_s + 12):
            lessons.add_look(JOB, look(number))
        for number in range(ahead_s, ahead_s + 6):
            lessons.add_rescale(JOB, Rescale(Runtime.AGENT, True, NOW_S + number, 0.1))
    assert [one.time_s - NOW_S for one in lessons.looks(JOB)] == list(range(12))
    assert [one.time_s - NOW_S for one in lessons.rescales(JOB)] == list(range(6))
    now_s += 7300
    assert len(lessons.looks(JOB)) == 16


def test_of_a_trainer_a_few_hundred_looks_are_kept() -> None:
    lessons = made()
    for number in range(600):
        lessons.add_look(JOB, look(number, nodes=number + 1))
    assert len(lessons.looks(JOB)) == 256


def test_of_a_name_the_latest_trainers_are_kept_and_those_that_run() -> None:
    lessons = made()
    for array in range(1, 8):
        lessons.add_look(JOB, look(array, array))
    lessons.forget_too_much(active={1})
    assert [one.array for one in lessons.looks(JOB)] == [1, 4, 5, 6, 7]


def test_a_user_cannot_fill_the_disk_with_names() -> None:
    lessons = made()
    for number in range(150):
        lessons.add_look(Job("alice", f"digits-{number}"), look(number, number))
    lessons.forget_too_much(active=())
    left = [number for number in range(150) if lessons.looks(Job("alice", f"digits-{number}"))]
    assert left == list(range(50, 150))


def test_of_rescales_the_latest_nine_of_a_kind_are_kept() -> None:
    lessons = made()
    for number in range(20):
        for grew in (True, False):
            lessons.add_rescale(JOB, Rescale(Runtime.AGENT, grew, NOW_S + number, 0.1 * number))
    kept = [one for one in lessons.rescales(JOB) if one.grew]
    assert [one.time_s - NOW_S for one in kept] == list(range(11, 20))
    assert len(lessons.rescales(JOB)) == 18


def test_the_generation_that_a_trainer_stands_in_is_known_after_a_restart() -> None:
    lessons = made()
    for generation in (1, 2):
        lessons.set_reform(ARRAY, Reform(NOW_S, Runtime.WORKER, generation, 3))
    assert lessons.reform(ARRAY) == Reform(NOW_S, Runtime.WORKER, 2, 3)
    assert lessons.reform(99) is None


def test_pauses_are_counted_by_whether_a_trainer_grew() -> None:
    history = History(":memory:")
    history.lessons.add_rescale(JOB, Rescale(Runtime.AGENT, True, NOW_S, 0.3))
    history.lessons.add_rescale(JOB, Rescale(Runtime.AGENT, False, NOW_S, 2.0))
    pauses = history.counts.pauses
    assert (pauses["up"].sum_s, pauses["down"].sum_s) == (0.3, 2.0)
