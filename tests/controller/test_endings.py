"""Nodes on which elements take long to end."""

from __future__ import annotations

from bftrainer_slurm.controller.endings import Endings
from bftrainer_slurm.model import ElementState
from tests.controller.worlds import element, view

GRACE_S = 0.5  # of a trainer that asks for none
ENDING = view(element(0, ElementState.ENDING, "n1"), element(1, ElementState.RUNNING, "n2"))
HELD = view(element(0, ElementState.HELD), element(1, ElementState.RUNNING, "n2"))


def slow(endings: Endings, now_s: float, seen: object = ENDING) -> dict[str, float]:
    return endings.slow([seen], now_s, 2.0)  # type: ignore[list-item]


def test_an_element_may_take_its_grace_and_what_is_allowed_beside() -> None:
    endings = Endings()
    assert slow(endings, 100.0) == {}
    assert slow(endings, 102.0 + GRACE_S) == {}


def test_a_node_where_it_takes_longer_is_told_once() -> None:
    endings = Endings()
    slow(endings, 100.0)
    assert slow(endings, 103.0) == {"n1": 3.0}
    assert slow(endings, 104.0) == {}


def test_the_next_ending_is_timed_anew() -> None:
    endings = Endings()
    slow(endings, 100.0)
    slow(endings, 101.0, HELD)
    assert slow(endings, 110.0) == {}
