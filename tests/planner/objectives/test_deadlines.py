"""Deadlines bend objective curves: up to what is needed a node counts before all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives import Deadline, Facts, find
from bftrainer_slurm.planner.objectives.deadlines import (
    Need,
    needs_of,
    nodes_needed,
    with_deadlines,
)

LINEAR = ThroughputCurve((0, 1, 8), (0.0, 100.0, 800.0))
PLAIN = Facts(LINEAR, 1, 8)


def due(due_s: float, rate: float, **changes: object) -> Facts:
    return replace(PLAIN, deadline=Deadline(due_s, rate), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "bounds", "nodes"),
    [
        *((rate, (1, 8), n) for rate, n in ((1, 1), (100, 1), (101, 2), (250, 3), (800, 8))),
        (801, (1, 8), 0),
        (100, (4, 8), 4),
        (500, (1, 4), 0),
    ],
)
def test_the_fewest_nodes_within_its_bounds_that_are_fast_enough_are_needed(
    rate: float, bounds: tuple[int, int], nodes: int
) -> None:
    assert nodes_needed(replace(PLAIN, min_nodes=bounds[0], max_nodes=bounds[1]), rate) == nodes


def test_the_earliest_deadline_comes_first_and_what_cannot_be_met_is_none() -> None:
    trainers = [due(30, 200), PLAIN, due(10, 900), due(20, 400)]
    needs = needs_of(trainers, most=8)
    assert list(needs.items()) == [(2, Need(0)), (3, Need(4)), (0, Need(2))]
    assert [index for index, need in needs.items() if need.counts] == [3, 0]


def test_a_deadline_beyond_the_sites_share_is_none() -> None:
    trainers = [due(10, 400), due(20, 400), due(30, 100)]
    assert needs_of(trainers, most=5) == {0: Need(4), 1: Need(4, left=1), 2: Need(1)}
    in_parts = [replace(one, share=0.25) for one in trainers]
    assert needs_of(in_parts, most=2.25) == {0: Need(4), 1: Need(4), 2: Need(1)}
    assert needs_of(in_parts, most=0.5)[0] == Need(4, left=2)


def test_up_to_the_need_a_node_is_worth_more_than_anybody_gains_and_as_usual_beyond() -> None:
    fast = replace(PLAIN, curve=ThroughputCurve((0, 1, 8), (0.0, 9000.0, 72_000.0)))
    trainers = [fast, due(10, 300)]
    curves = find("throughput")(trainers)
    bent = with_deadlines(curves, needs_of(trainers, most=8))
    assert bent[0] == curves[0]  # without a deadline nothing changes
    gains = [bent[1].at(size + 1) - bent[1].at(size) for size in range(8)]
    assert min(gains[:3]) > 9000.0
    assert gains[3:] == pytest.approx([100.0] * 5)


def test_a_node_of_an_earlier_deadline_is_worth_more() -> None:
    trainers = [due(20, 300), due(10, 300)]
    later, earlier = with_deadlines(find("speedup")(trainers), needs_of(trainers, most=8))
    assert earlier.at(3) - earlier.at(2) > later.at(3) - later.at(2)
    assert earlier.at(8) - earlier.at(3) == pytest.approx(later.at(8) - later.at(3))
