"""Figures of logs that can be counted by hand."""

from __future__ import annotations

import math
from datetime import UTC
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from bftrainer_slurm.replay.assessment.statistics import describe
from tests.replay.assessment.logs import log


def test_idle_time_over_the_machine() -> None:
    figures = describe(log([(0, 0, 10), (1, 5, 10)], hours=10), UTC)
    assert figures.idle_node_hours == pytest.approx(15)
    assert figures.idle_share == pytest.approx(0.15)
    assert figures.mean_idle_nodes == pytest.approx(1.5)


def test_holes_and_their_lengths() -> None:
    figures = describe(log([(0, 0, 1), (1, 0, 2), (2, 0, 30)], hours=30), UTC)
    assert (figures.holes, figures.median_hole_s) == (3, 7200)
    filled = [(one.from_s, one.holes, one.node_hours) for one in figures.lengths if one.holes]
    assert filled == [(3600, 2, pytest.approx(3)), (86400, 1, pytest.approx(30))]


def test_length_classes_hold_every_hole() -> None:
    figures = describe(log([(k, 0, 10.0 ** (k - 5)) for k in range(9)], hours=2000), UTC)
    assert sum(one.holes for one in figures.lengths) == 9
    hours = sum(one.node_hours for one in figures.lengths)
    assert hours == pytest.approx(figures.idle_node_hours)


def test_the_week_by_hour() -> None:
    # Monday 00:00 to 01:30 two nodes, in the second week none.
    by_hour = describe(log([(0, 0, 1.5), (1, 0, 1.5)], hours=14 * 24), UTC).by_hour
    assert by_hour[0, 0] == pytest.approx(1.0)
    assert by_hour[0, 1] == pytest.approx(0.5)
    assert np.count_nonzero(by_hour) == 2


def test_hours_are_those_of_the_zone() -> None:
    by_hour = describe(log([(0, 0, 1)], hours=24 * 7), ZoneInfo("Asia/Kolkata")).by_hour
    assert by_hour[0, 5] == pytest.approx(0.5)  # 05:30 to 06:30
    assert by_hour[0, 6] == pytest.approx(0.5)


def test_hours_that_the_log_does_not_reach_are_unknown() -> None:
    by_hour = describe(log([(0, 0, 1)], hours=2), UTC).by_hour
    assert np.isfinite(by_hour).sum() == 2


def test_a_log_without_any_hole() -> None:
    figures = describe(log([], hours=10), UTC)
    assert (figures.idle_node_hours, figures.holes) == (0, 0)
    assert math.isnan(figures.median_hole_s)
