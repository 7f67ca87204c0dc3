"""What all benches say of several times, and of a target."""

from __future__ import annotations

import pytest

from scripts.benchkit.figures import at_least, at_most, summarise


def test_a_quantile_lies_between_the_two_values_nearest_to_it() -> None:
    found = summarise([float(number) for number in range(1, 101)])
    assert (found.count, found.median, found.least, found.most) == (100, 50.5, 1.0, 100.0)
    assert (found.p95, found.p99) == (pytest.approx(95.05), pytest.approx(99.01))


def test_the_order_of_the_values_does_not_matter() -> None:
    assert summarise([3.0, 1.0, 2.0]) == summarise([1.0, 2.0, 3.0])


def test_one_value_is_its_own_quantile() -> None:
    found = summarise([2.0])
    assert found.least == found.median == found.p95 == found.p99 == found.most == 2.0


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (at_most("a", 0.25, 0.25), True),
        (at_most("a", 0.26, 0.25), False),
        (at_least("a", 100.0, 100), True),
        (at_least("a", 99.9, 100), False),
    ],
    ids=str,
)
def test_a_target_is_met_where_the_figure_reaches_it(target, met) -> None:  # type: ignore[no-untyped-def]
    assert target.met is met


def test_a_target_says_what_was_found_and_asked() -> None:
    assert str(at_most("pause, s", 0.5, 0.25)) == "MISSED  pause, s: 0.500 <= 0.25"
    assert str(at_most("jobs failed", 0, 0)) == "met     jobs failed: 0 <= 0"
