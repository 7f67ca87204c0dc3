"""What trainers in reserve are worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.decide.problem import spares_of, with_stand_ins
from bftrainer_slurm.model import ThroughputCurve
from tests.planner.problems import contender

TEN = [replace(contender(str(number)), rescale_up_s=18.0) for number in range(10)]


def test_a_reserve_is_worth_part_of_a_growth_to_the_usual_size() -> None:
    first, *others = spares_of(TEN, [0.0] * 10, grown_pool=40)
    assert 0 < first < 18 * 4
    assert sorted(others, reverse=True) == others
    assert max(others) < first


def test_where_a_start_costs_as_much_as_a_growth_there_is_none() -> None:
    assert spares_of(TEN, [18.0] * 10, grown_pool=40) == ()


def test_a_trainer_alone_is_not_held_back() -> None:
    assert spares_of(TEN[:1], [0.0], grown_pool=40) == ()
    assert len(spares_of(TEN[:2], [0.0] * 2, grown_pool=40)) == 1


@pytest.mark.parametrize("grown_pool", [0.0, 1e6])
def test_the_usual_size_keeps_the_trainers_bounds(grown_pool: float) -> None:
    assert 0 < spares_of(TEN, [0.0] * 10, grown_pool)[0] <= 18 * 8


def test_who_uses_many_nodes_badly_stands_in_for_nobody() -> None:
    flat = contender("flat", curve=ThroughputCurve((0, 1, 8), (0.0, 1.0, 2.0)))
    assert [one.stands_in for one in with_stand_ins([flat, *TEN[:2]])] == [False, True, True]
    assert with_stand_ins([]) == ()
