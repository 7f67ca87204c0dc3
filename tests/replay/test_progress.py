"""A simulated trainer's samples and pauses, checked by hand: 10 samples/s a node."""

from __future__ import annotations

import math

import pytest

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


def test_a_reclaim_is_counted_apart() -> None:
    one = running("a", "b")
    one.reclaimed({1}, 0.0)
    one.advance(0, 40)
    assert (one.samples, one.lost_to_reclaims, one.lost_to_rescaling) == (300, 100, 0)
    assert one.delayed == {1}


def test_a_change_during_a_pause_does_not_add_up() -> None:
    one = running("a", "b")
    one.reclaimed({1}, 0.0)
    one.join(1, "c", 0.0001)
    one.join(2, "d", 5.0)
    one.advance(5, 105)
    assert one.samples == 80 * 30  # paused from 5 to 25
    assert one.lost_to_reclaims == 5 * 30  # to 10
    assert one.lost_to_rescaling == 15 * 30


def test_who_loses_everything_starts_anew_free_of_cost() -> None:
    one = running("a")
    one.reclaimed({0}, 0.0)
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
    assert (one.samples, one.finishes_s(100)) == (0, math.inf)


@pytest.mark.parametrize(("scale", "paused_s"), [(0.0, 0), (0.5, 10), (2.0, 40)])
def test_rescale_costs_can_be_scaled(scale: float, paused_s: float) -> None:
    one = running("a", scale=scale)
    one.join(1, "b", 1.0)
    one.advance(1, 101)
    assert one.samples == (100 - paused_s) * 20


def test_knows_when_it_will_be_done() -> None:
    one = running("a", "b")
    one.join(2, "c", 100.0)
    assert one.finishes_s(100.0) == pytest.approx(120 + 10_000 / 30)
    one.advance(100.0, one.finishes_s(100.0))
    assert one.done
