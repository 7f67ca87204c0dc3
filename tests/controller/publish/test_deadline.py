"""What is published of a deadline, from what is left of the samples and of the time."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.publish.deadline import deadline_status
from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.spec import Spec

THREE = Need(3)


@pytest.mark.parametrize(
    ("samples", "left_s", "rate", "need", "state", "needs", "late_s"),
    [
        (0.0, 100.0, 20.0, THREE, "on time", 10.0, None),
        (500.0, 50.0, 5.0, THREE, "late", 10.0, 50.0),
        (500.0, 50.0, None, THREE, "late", 10.0, None),
        (500.0, 50.0, 5.0, None, "late", 10.0, 50.0),
        (0.0, 100.0, 4.0, Need(0), "cannot be met", 10.0, 150.0),
        (None, 100.0, None, Need(1), "not known", 10.0, None),
        (999.0, 0.0, 20.0, None, "passed", None, None),
        (1000.0, -100.0, 20.0, None, "done", None, None),
    ],
)
def test_it_says_what_is_needed_and_whether_it_is_on_time(
    samples: float | None,
    left_s: float,
    rate: float | None,
    need: Need | None,
    state: str,
    needs: float | None,
    late_s: float | None,
) -> None:
    told = deadline_status(Spec(samples=1000.0, by_s=left_s), samples, rate, need, now_s=0.0)
    nodes = None if need is None else need.nodes
    about = {"state": state, "needs": needs, "late_s": late_s, "nodes": nodes}
    assert told == about | {"nodes_left": None}


def test_it_says_what_the_sites_share_leaves_if_that_is_too_little() -> None:
    told = deadline_status(Spec(samples=1000.0, by_s=100.0), 0.0, 5.0, Need(3, left=1), now_s=0.0)
    assert told is not None
    assert (told["state"], told["nodes"], told["nodes_left"]) == ("late", 3, 1)


def test_without_a_deadline_nothing_is_said() -> None:
    assert deadline_status(Spec(samples=1000.0), 0.0, 5.0, None, now_s=0.0) is None
