"""Which parts of a log are replayed, and with what."""

from __future__ import annotations

import pytest

from bftrainer_slurm.replay.assessment.harvest import samples_of
from bftrainer_slurm.replay.trainers import typical_trainers
from tests.replay.assessment.logs import HOUR, MONDAY, log


def test_a_short_log_is_replayed_whole() -> None:
    (sample,) = samples_of(log([(0, 1, 2), (1, 1, 4)], hours=8))
    assert (sample.hours, sample.idle_hours) == (8, 4)


def test_of_a_long_log_the_parts_that_stand_for_all_of_it() -> None:
    idle = (5, 1, 3, 9, 7, 8, 2, 10, 6, 4)
    parts = [(k, 12 * k, 12 * k + hours) for k, hours in enumerate(idle)]
    samples = samples_of(log(parts, hours=120))
    assert sorted(sample.idle_hours for sample in samples) == [2, 4, 6, 8, 10]
    assert [sample.from_s for sample in samples] == sorted(one.from_s for one in samples)


def test_parts_without_a_hole_are_not_replayed() -> None:
    (sample,) = samples_of(log([(0, 25, 26)], hours=48))
    assert sample.from_s == MONDAY + 24 * HOUR


def test_where_much_happens_parts_are_shorter() -> None:
    busy = [(0, k / 60, k / 60 + 0.01) for k in range(60 * 24)]
    samples = samples_of(log(busy, hours=24))
    assert {sample.hours for sample in samples} == {6}


def test_the_length_may_be_said() -> None:
    assert {one.hours for one in samples_of(log([(0, 0, 100)], hours=100), hours=10)} == {10}


def test_a_hole_is_cut_at_the_edges_of_the_part() -> None:
    sample = samples_of(log([(0, 0, 30)], hours=30), hours=10)[0]
    assert (sample.idle_hours, sample.mean_idle) == (10, 1)


def test_a_part_begins_before_its_first_hole() -> None:
    (sample,) = samples_of(log([(0, 3, 4)], hours=8))
    assert sample.trace.start_s == sample.from_s == MONDAY


def test_a_list_of_holes_tells_nothing_of_jobs() -> None:
    assert samples_of(log([(0, 3, 4)], hours=8))[0].play is None


def test_typical_trainers_scale_as_they_are_described() -> None:
    (trainer,) = typical_trainers(1)
    assert round(trainer.curve.at(64) / trainer.curve.at(1)) == 39
    assert (trainer.min_nodes, trainer.max_nodes) == (1, 64)
    assert trainer.rescale_up_s == pytest.approx(0.2)
