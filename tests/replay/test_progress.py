"""A simulated trainer's samples and pauses, checked by hand: 10 samples/s a node."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.replay.progress import SimulatedTrainer
from tests.replay.traces import trainer


def running(*nodes: str, scale: float = 1.0, bounds: tuple[int, int] = (1, 8)) -> SimulatedTrainer:
    made = SimulatedTrainer(1, trainer(bounds=bounds, total=10_000.0), scale)
    for task, node in enumerate(nodes):
        made.join(task, node, 0.0)
    return made


def test_a_start_is_free_of_cost() -> None:
    one = running("a", "b")
    one.advance(0, 10)
    assert one.samples == 200


def test_growing_stops_all_of_it() -> None:
    one = running("a")
    one.join(1, "b", 0.0)  # at the moment of its start: part of the start
    one.join(2, "c", 10.0)
    one.advance(10, 40)
    assert (one.samples, one.lost_to_rescaling) == (30 * 10, 30 * 20)


def test_shrinking_costs_less() -> None:
    one = running("a", "b")
    one.leave({1}, 0.0)
    one.advance(0, 40)
    assert (one.samples, one.lost_to_rescaling) == (10 * 30, 10 * 10)


def test_samples_count_less_in_large_batches() -> None:
    one = running("a", "b", "c")
    one.spec = replace(one.spec, noise=1.0)  # three nodes' batches: a sample counts a half
    one.advance(0, 10)
    one.reclaim({2}, 10.0)
    one.advance(10, 20)
    one.advance(20, 30)  # two nodes' batches: two thirds
    assert (one.samples, one.progress) == (300 + 200, pytest.approx(150 + 200 * 2 / 3))


def test_a_reclaim_is_counted_apart() -> None:
    one = running("a", "b")
    one.reclaim({1}, 0.0)
    one.advance(0, 40)
    assert (one.samples, one.lost_to_reclaims, one.lost_to_rescaling) == (300, 100, 0)


def test_a_change_during_a_pause_does_not_add_up() -> None:
    one = running("a", "b")
    one.reclaim({1}, 0.0)
    one.join(1, "c", 0.0001)
    one.join(2, "d", 5.0)
    one.advance(5, 105)
    assert one.samples == 80 * 30  # paused from 5 to 25
    assert one.lost_to_reclaims == 5 * 30  # to 10
    assert one.lost_to_rescaling == 15 * 30


def test_who_loses_everything_starts_anew_free_of_cost() -> None:
    one = running("a")
    one.reclaim({0}, 0.0)
    one.join(1, "b", 1.0)
    one.advance(1, 11)
    assert one.samples == 100


def test_a_stop_is_no_way_out_of_a_pause() -> None:
    one = running("a")
    one.join(1, "b", 5.0)
    one.leave({0, 1}, 5.0)
    one.join(2, "c", 5.0)
    one.advance(5, 35)
    assert one.samples == 10 * 10


def test_below_its_least_number_of_nodes_it_stands_still() -> None:
    one = running("a", bounds=(2, 8))
    one.advance(0, 100)
    assert (one.samples, one.finish_s(100)) == (0, math.inf)


@pytest.mark.parametrize(("scale", "paused_s"), [(0.0, 0), (0.5, 10), (2.0, 40)])
def test_rescale_costs_can_be_scaled(scale: float, paused_s: float) -> None:
    one = running("a", scale=scale)
    one.join(1, "b", 1.0)
    one.advance(1, 101)
    assert one.samples == (100 - paused_s) * 20


def test_knows_when_it_will_be_done() -> None:
    one = running("a", "b")
    one.join(2, "c", 100.0)
    assert one.finish_s(100.0) == pytest.approx(120 + 10_000 / 30)
    one.advance(100.0, one.finish_s(100.0))
    assert one.done


def test_is_done_also_where_more_nodes_bring_nothing() -> None:
    curve = ThroughputCurve((0, 1, 2), (0.0, 97.3, 0.0))
    one = SimulatedTrainer(1, trainer(bounds=(1, 2), total=12_345.678, curve=curve), 1.0)
    one.join(0, "a", 1.6e9)
    one.advance(1.6e9, one.finish_s(1.6e9))
    assert one.done


def starting(*nodes: str) -> SimulatedTrainer:
    spec = replace(trainer(total=10_000.0), start_s=8.0, step_s=2.0, checkpoint_s=100.0)
    made = SimulatedTrainer(1, spec, 1.0)
    for task, node in enumerate(nodes):
        made.join(task, node, 0.0)
    made.advance(0.0, made.ready_s())
    return made


def test_a_node_trains_only_when_it_has_started() -> None:
    one = starting("a")
    one.advance(8.0, 18.0)
    assert (one.samples, one.ready_s()) == (100, math.inf)


def test_the_others_train_on_until_a_new_one_has_started() -> None:
    one = starting("a")
    one.join(1, "b", 10.0)
    one.advance(10.0, one.ready_s())
    assert (one.samples, one.lost_to_rescaling) == (80, 0)
    one.advance(18.0, 48.0)
    assert (one.samples, one.lost_to_rescaling) == (80 + 10 * 20, 20 * 20)
    assert one.measured == {1: (80.0, 8.0), 2: (200.0, 10.0)}


def test_a_reclaim_takes_half_a_step_with_it_and_the_last_one_half_a_checkpoint() -> None:
    one = starting("a", "b")
    one.advance(8.0, 208.0)
    one.reclaim({1}, 208.0)
    assert one.samples == 200 * 20 - 20
    one.advance(208.0, 218.0)
    one.reclaim({0}, 218.0)
    assert one.samples == 200 * 20 - 20 - 50 * 10
    assert one.lost_to_reclaims == 20 + 10 * 10 + 50 * 10


def test_a_node_that_leaves_while_it_starts_has_done_nothing() -> None:
    one = starting("a")
    one.join(1, "b", 10.0)
    one.leave({1}, 12.0)
    assert one.ready_s() == math.inf
