"""A simulated trainer's samples and pauses, checked by hand: 10 samples/s a node."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.replay.progress import SimulatedTrainer
from tests.controller.worlds import cases
from tests.replay.traces import trainer


def doing(one: SimulatedTrainer, steps: str) -> SimulatedTrainer:
    """Nodes join, leave, or are reclaimed at a second; it trains from one second to another."""
    for step in filter(None, steps.split("; ")):
        what, *nodes, at = step.split()
        tasks = {"abcd".find(node) for node in nodes}
        if what == "train":
            one.advance(float(nodes[0]), float(at))
        elif what == "join":
            one.join(tasks.pop(), nodes[0], float(at))
        else:
            {"leave": one.leave, "reclaim": one.reclaim}[what](tasks, float(at))
    return one


def running(nodes: str, scale: float = 1.0, **known: object) -> SimulatedTrainer:
    spec = replace(trainer(total=10_000.0), **known)
    return doing(SimulatedTrainer(1, spec, scale), "; ".join(f"join {node} 0" for node in nodes))


def starting(nodes: str) -> SimulatedTrainer:
    made = running(nodes, start_s=8.0, step_s=2.0, checkpoint_s=100.0)
    return doing(made, f"train 0 {made.ready_s()}")


@cases(
    "one, steps, samples, lost",
    a_start_is_free_of_cost=(running("ab"), "train 0 10", 200, (0, 0)),
    growing_stops_all_of_it=(running("ab"), "join c 10; train 10 40", 30 * 10, (30 * 20, 0)),
    shrinking_costs_less=(running("ab"), "leave b 0; train 0 40", 10 * 30, (10 * 10, 0)),
    a_reclaim_is_counted_apart=(running("ab"), "reclaim b 0; train 0 40", 300, (0, 100)),
    a_change_during_a_pause_does_not_add_up=(  # paused from 5 to 25, to 10 by the reclaim
        running("ab"),
        *("reclaim b 0; join c 0.0001; join d 5; train 5 105", 80 * 30, (15 * 30, 5 * 30)),
    ),
    who_loses_everything_starts_anew_free_of_cost=(
        *(running("a"), "reclaim a 0; join b 1; train 1 11", 100, (0, 0)),
    ),
    a_stop_is_no_way_out_of_a_pause=(
        *(running("a"), "join b 5; leave a b 5; join c 5; train 5 35", 10 * 10, (20 * 10, 0)),
    ),
    below_its_least_number_of_nodes_it_stands_still=(
        *(running("a", min_nodes=2), "train 0 100", 0, (0, 0)),
    ),
    rescaling_may_be_free=(running("a", 0.0), "join b 1; train 1 101", 2000, (0, 0)),
    or_cost_twice_as_much=(running("a", 2.0), "join b 1; train 1 101", 60 * 20, (40 * 20, 0)),
    a_node_trains_only_when_it_has_started=(starting("a"), "train 8 18", 100, (0, 0)),
    the_others_train_on_until_a_new_one_has_started=(
        *(starting("a"), "join b 10; train 10 18; train 18 48", 80 + 10 * 20, (20 * 20, 0)),
    ),
    a_node_that_leaves_while_it_starts_has_done_nothing=(
        *(starting("a"), "join b 10; leave b 12", 0, (0, 0)),
    ),
    a_reclaim_takes_half_a_step_with_it=(
        *(starting("ab"), "train 8 208; reclaim b 208", 199 * 20, (0, 20)),
    ),
    and_the_last_one_half_a_checkpoint=(
        *(starting("a"), "train 8 208; reclaim a 208", 150 * 10, (0, 500)),
    ),
)
def test_what_happens(
    one: SimulatedTrainer, steps: str, samples: float, lost: tuple[float, float]
) -> None:
    doing(one, steps)
    assert one.samples == samples
    assert (one.lost_to_rescaling, one.lost_to_reclaims) == lost


def test_samples_count_less_in_large_batches() -> None:
    # Three nodes' batches: a sample counts a half; then two nodes': two thirds.
    one = running("abc", noise=1.0)
    doing(one, "train 0 10; reclaim c 10; train 10 20; train 20 30")
    assert (one.samples, one.progress) == (300 + 200, pytest.approx(150 + 200 * 2 / 3))


def test_knows_when_it_will_be_done() -> None:
    one = doing(running("ab"), "join c 100")
    assert one.finish_s(100.0) == pytest.approx(120 + 10_000 / 30)
    one.advance(100.0, one.finish_s(100.0))
    assert one.done
    assert running("a", min_nodes=2).finish_s(100) == math.inf


def test_is_done_also_where_more_nodes_bring_nothing() -> None:
    curve = ThroughputCurve((0, 1, 2), (0.0, 97.3, 0.0))
    one = SimulatedTrainer(1, trainer(bounds=(1, 2), total=12_345.678, curve=curve), 1.0)
    one.join(0, "a", 1.6e9)
    one.advance(1.6e9, one.finish_s(1.6e9))
    assert one.done


def test_knows_what_it_did_on_how_many_nodes_without_its_pauses() -> None:
    one = doing(running("abc"), "leave c 0; train 0 50; join d 50; train 50 100")
    assert one.measured == {2: (800.0, 40.0), 3: (900.0, 30.0)}


def test_knows_when_the_last_of_its_nodes_has_started() -> None:
    one = starting("a")
    assert one.ready_s() == math.inf
    assert doing(one, "join b 10").ready_s() == 18.0
    assert doing(one, "leave b 12").ready_s() == math.inf
