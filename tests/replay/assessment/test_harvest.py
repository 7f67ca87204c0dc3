"""Which part of a log is replayed, how often, and with what."""

from __future__ import annotations

from bftrainer_slurm.replay.assessment.harvest import (
    HarvestOptions,
    HarvestResult,
    planned_replays,
    replays,
    typical_sample,
)
from bftrainer_slurm.replay.assessment.typical import typical_trainers
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.trace import Trace
from bftrainer_slurm.replay.trainers import TrainerSpec
from tests.replay.assessment.logs import HOUR, MONDAY, log
from tests.replay.assessment.standin import equal_shares


def sample_of(one: Log, hours: float | None = None):  # type: ignore[no-untyped-def]
    return typical_sample(one.holes, one.from_s, one.to_s, hours)


def test_a_short_log_is_replayed_whole() -> None:
    sample = sample_of(log([(0, 1, 2), (1, 1, 4)], hours=50))
    assert sample.whole
    assert (sample.hours, sample.idle_node_hours) == (50, 4)


def test_of_a_long_log_the_week_with_the_median_idle_time() -> None:
    weeks = [(k, 168 * k, 168 * k + idle) for k, idle in enumerate((5, 1, 3))]
    sample = sample_of(log(weeks, hours=3 * 168))
    assert (sample.hours, sample.idle_node_hours, sample.whole) == (168, 3, False)
    assert sample.from_s == MONDAY + 2 * 168 * HOUR


def test_where_much_happens_the_part_is_shorter() -> None:
    busy = [(0, k / 60, k / 60 + 0.01) for k in range(60 * 168)]
    sample = sample_of(log(busy, hours=168))
    assert sample.hours == 6
    assert len(sample.trace.time_s) <= 1000


def test_the_length_may_be_said() -> None:
    assert sample_of(log([(0, 0, 100)], hours=100), hours=10).hours == 10


def test_a_hole_is_cut_at_the_edges_of_the_part() -> None:
    sample = sample_of(log([(0, 0, 30)], hours=30), hours=10)
    assert sample.idle_node_hours == 10
    assert sample.mean_pool_nodes == 1


def test_a_grid_around_the_first_number_of_trainers() -> None:
    planned = planned_replays((10, 35))
    assert planned[:2] == (HarvestOptions(10), HarvestOptions(35))
    assert len(planned) == len(set(planned)) == 10
    assert {one.at_once for one in planned[2:]} == {10}


def test_every_trainer_waits_from_the_start() -> None:
    seen: list[tuple[TrainerSpec, ...]] = []

    def harvest(
        trace: Trace, trainers: tuple[TrainerSpec, ...], options: HarvestOptions
    ) -> HarvestResult:
        seen.append(trainers)
        return equal_shares(trace, trainers, options)

    sample = sample_of(log([(0, 1, 2)], hours=5))
    (one,) = replays(sample, typical_trainers(3), (HarvestOptions(2),), harvest)
    assert [trainer.submit_s for trainer in seen[0]] == [MONDAY] * 3
    assert one.options.at_once == 2


def test_typical_trainers_scale_as_they_are_described() -> None:
    (trainer,) = typical_trainers(1)
    assert round(trainer.curve.at(64) / trainer.curve.at(1)) == 39
    assert (trainer.min_nodes, trainer.max_nodes) == (1, 64)
