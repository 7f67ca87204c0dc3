"""What trainers say is read, refused where it cannot be true, and summed up."""

from __future__ import annotations

import math

import pytest

from bftrainer_slurm.controller.observe.reports import (
    Progress,
    Reform,
    Report,
    read_reform,
    read_report,
)
from bftrainer_slurm.controller.publish.status import samples_per_s
from bftrainer_slurm.keeper.protocol import NoteKind
from tests.controller.worlds import note


def test_what_is_not_said_is_not_known() -> None:
    assert read_report(note(NoteKind.PROGRESS, 5.0, steps=3.0), 8) == Report(5.0, steps=3.0)


def test_everything_else_is_what_the_script_measured() -> None:
    report = read_report(note(NoteKind.PROGRESS, 5.0, samples=1.0, loss=0.5, broken=math.nan), 8)
    assert report is not None
    assert report.measures == {"loss": 0.5}


@pytest.mark.parametrize(
    "lie",
    [
        *({"samples": -1.0}, {"samples": math.nan}, {"samples": 1e300}, {"steps": math.inf}),
        *({"nodes": 9.0}, {"generation": -1.0}, {"pause_s": 1e6}),
    ],
    ids=str,
)
def test_what_cannot_be_true_is_refused(lie: dict[str, float]) -> None:
    assert read_report(note(NoteKind.PROGRESS, 5.0, **lie), max_nodes=8) is None


@pytest.mark.parametrize(
    ("said", "launcher"),
    [(8, "srun python"), (3.5, "accelerate"), (-1, ""), (99, ""), (math.nan, ""), (0, "")],
)
def test_a_new_generation_says_how_the_trainer_runs_and_what_has_started_it(
    said: float, launcher: str
) -> None:
    told = note(NoteKind.REFORMED, 5.0, generation=3, nodes=1, launcher=said)
    assert read_reform(told) == Reform(5.0, 3, 1, launcher)


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"generation": math.nan}])
def test_a_new_generation_that_cannot_be_is_none(wrong: dict[str, float]) -> None:
    measures = {"generation": 3.0, "nodes": 4.0} | wrong
    assert read_reform(note(NoteKind.REFORMED, 5.0, **measures)) is None


def test_samples_are_summed_up_over_elements_that_count_each_for_itself() -> None:
    progress = Progress()
    counts = [10.0, 30.0, 5.0, 25.0]  # after the second another element reports
    totals = [
        progress.add(Report(float(second), samples=count)).samples
        for second, count in enumerate(counts)
    ]
    assert totals == [10.0, 30.0, 30.0, 50.0]


def test_samples_a_second_are_those_of_the_last_half_minute() -> None:
    progress = Progress()
    for second in range(60):
        progress.add(Report(float(second), samples=float(second**2)))
    assert samples_per_s(progress.recent, 59.0) == pytest.approx((59**2 - 29**2) / 30)
    assert samples_per_s(progress.recent, 100.0) is None


def test_a_trainer_that_only_counts_steps_has_no_samples() -> None:
    progress = Progress()
    for second in range(3):
        report = progress.add(Report(float(second), steps=10.0 * second))
    assert (report.samples, report.steps) == (None, 20.0)
    assert samples_per_s(progress.recent, 2.0) is None
