"""What a change of nodes loses, as the reports of a trainer's members tell."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from bftrainer_slurm.controller.observe.reports import Report
from bftrainer_slurm.controller.state.goodput import MOST_S, Loss, Served, Work, goodput, worked
from scripts.exactly_once.account import account, in_the_model

# A report: time, generation, how often it began at step 0 again, seconds since its checkpoint.
Told: TypeAlias = tuple[float, int, int | None, float | None]
LIVES: dict[str, tuple[list[Told], float, float]] = {
    # what was told, what a change now would lose, what was thrown away so far
    "its first start": ([(0, 1, None, None), (50, 1, None, None)], 0, 0),
    "once anew": ([(0, 1, None, None), (50, 1, None, None), (60, 2, 1, None)], 0, 50),
    "twice anew": (
        [(0, 1, None, None), (50, 1, None, None), (60, 2, 1, None), (90, 2, 1, None)]
        + [(100, 3, 2, None), (140, 3, 2, None)],
        *(40, 50 + 30),
    ),
    "a new first node cannot tell": (
        [(0, 1, 2, None), (50, 1, 2, None), (60, 2, None, None), (70, 2, None, None)],
        *(10, 50),
    ),
    "twice anew, as two nodes saw it once each": (
        [(0, 1, 1, None), (50, 1, 1, None), (60, 2, 1, None), (70, 2, 1, None)],
        *(10, 50),
    ),
    "it resumes now": (
        [(0, 1, 2, None), (50, 1, 2, None), (60, 2, 0, None), (90, 2, 0, None)],
        *(0, 0),
    ),
    "it resumes, and anew again": (
        [(0, 1, 2, None), (60, 2, 0, None), (90, 2, 0, None), (99, 3, 1, None), (120, 3, 1, None)],
        *(0, 30),
    ),
    "since its checkpoint": ([(0, 1, 0, None), (50, 1, 0, 20)], 20, 0),
    "back to its checkpoint": (
        [(0, 1, 0, None), (50, 1, 0, 20), (60, 2, 0, None), (90, 2, 0, 30)],
        *(30, 20),
    ),
    "it claims more than it trained": ([(0, 1, 0, 999), (50, 1, 0, 999)], 50, 0),
    "it claims to be anew, for years": (
        [(0, 1, 99, None), (9e6, 1, 99, None), (9e6 + 1, 1, 99, None)],
        *(MOST_S, 0),
    ),
}


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_what_a_change_loses(life: tuple[list[Told], float, float]) -> None:
    told, lost_s, thrown_s = life
    work: Work | None = None
    for time_s, generation, from_start, unsaved_s in told:
        pause_s = 10.0 if work and generation != work.generation else None
        report = Report(
            time_s,
            steps=1,
            generation=generation,
            pause_s=pause_s,
            from_start=from_start,
            unsaved_s=unsaved_s,
        )
        work = worked(work, report, 0.0, -1.0)
    assert work is not None
    assert (work.loss.seconds, work.again_s) == (lost_s, thrown_s)


def test_steps_with_numbers_are_told_as_trained_again_once() -> None:
    work = worked(None, Report(0.0, steps=1, generation=1), 0.0, -1.0)
    work = worked(work, Report(50.0, steps=9, generation=1), 0.0, -1.0)
    again = Report(100.0, steps=10, generation=2, pause_s=45.0, again_s=40.0, from_start=1)
    work = worked(work, again, 0.0, -1.0)
    assert (work.trained_s, work.rescaling_s, work.again_s) == (55, 5, 40)


def test_who_goes_on_in_memory_loses_nothing() -> None:
    assert Loss(present_s=500.0).seconds == 0.0


@pytest.mark.parametrize(("saves_every", "again"), [(0, 12), (5, 2)])
def test_what_is_trained_again_is_what_the_bench_counts(saves_every: int, again: int) -> None:
    """20 steps of a second, of which 12 lie before a change that takes it back."""
    begin = 12 - again
    lives = {"first": range(12), "second": range(begin, 20)}
    records: dict[str, list[dict[str, object]]] = {"0": []}
    work: Work | None = None
    begin_s = time_s = 1000.0
    for generation, (life, steps) in enumerate(lives.items(), start=1):
        for step in steps:
            place = {"life": life, "step": step, "time_s": time_s, "world": 1, "rate": 1.0}
            records["0"].append(place | {"numbers": [step]})
            report = Report(
                *(time_s, time_s, step),
                generation=generation,
                pause_s=0.0 if generation > 1 else None,
                from_start=0 if saves_every else generation - 1,
                unsaved_s=float(step % saves_every) + 1 if saves_every else None,
            )
            work = worked(work, report, 0.0, -1.0)
            time_s += 1.0
    told = account(*in_the_model(records), samples=20, epochs=1, loss=None)
    had = Served(time_s - begin_s, first_s=begin_s, last_s=time_s)
    spent = goodput(work, had, begin_s, ended=True, now_s=time_s)
    assert told.again == again
    # One second more or less: the first report begins the time.
    assert spent["again_s"] == pytest.approx(again, abs=1.0)
    assert spent["trained_s"] == pytest.approx(told.trained - told.again, abs=1.0)
