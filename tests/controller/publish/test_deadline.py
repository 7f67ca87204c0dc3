"""What is published of a deadline, from what is left of the samples and of the time."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.publish.deadline import deadline_status


@pytest.mark.parametrize(
    ("left", "left_s", "rate", "most", "state", "needs", "late_s"),
    [
        (1000.0, 100.0, 20.0, 40.0, "on time", 10.0, None),
        (500.0, 50.0, 5.0, 40.0, "late", 10.0, 50.0),
        (500.0, 50.0, None, 40.0, "late", 10.0, None),
        (1000.0, 100.0, 4.0, 5.0, "cannot be met", 10.0, 150.0),
        (1000.0, 100.0, None, None, "not known", 10.0, None),
        (1.0, 0.0, 20.0, 40.0, "passed", None, None),
        (0.0, -100.0, 20.0, 40.0, "done", None, None),
    ],
)
def test_it_says_what_is_needed_and_whether_it_is_on_time(
    left: float,
    left_s: float,
    rate: float | None,
    most: float | None,
    state: str,
    needs: float | None,
    late_s: float | None,
) -> None:
    told = deadline_status(left, left_s, rate, most)
    assert told == {"state": state, "needs": needs, "late_s": late_s}
