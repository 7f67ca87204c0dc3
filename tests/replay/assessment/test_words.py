"""Figures in words."""

from __future__ import annotations

import math

import pytest

from bftrainer_slurm.replay.assessment.words import amount, between, duration, percent


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (3600, "1 h"),
        (86400, "1 day"),
        (2.5 * 86400, "2.5 days"),
        (math.nan, "-"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_ranges() -> None:
    assert between(0, 60) == "under 1 min"
    assert between(60, 3600) == "1 min to 1 h"
    assert between(3600, math.inf) == "1 h or more"


@pytest.mark.parametrize(
    ("number", "words"), [(12345.6, "12,346"), (12.34, "12.3"), (0.1234, "0.123"), (math.nan, "-")]
)
def test_amounts(number: float, words: str) -> None:
    assert amount(number) == words


def test_shares() -> None:
    assert percent(0.1234) == "12.3 %"
    assert percent(math.nan) == "-"
