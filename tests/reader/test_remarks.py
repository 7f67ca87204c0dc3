"""Notes on trainers: what is remarkable, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from bftrainer_slurm.keeper.disclosure import shown
from bftrainer_slurm.reader.remarks import remarks

HEALTHY: dict[str, Any] = {
    "array": 12,
    "name": "net",
    "user": "alice",
    "state": "running",
    "why": None,
    "failures": 0,
    "failed_on": [],
    "notice": None,
    "error": None,
    "min_nodes": 2,
    "max_nodes": 8,
    "nodes": ["n1", "n2", "n3"],
    "starting": [],
    "reclaimed": 0,
    "node_s": 7200.0,
    "samples": 5000.0,
    "refused_reports": 0,
    "rescale": {"up": {"seconds": 1.0, "count": 3}, "down": {"seconds": 0.2, "count": 1}},
    "goodput": {"trained_s": 3300.0, "rescaling_s": 100.0, "lost_s": 200.0,
                "waiting_s": 60.0, "with_nodes_s": 3600.0},
    "plan": {"limit": "others", "nodes": 3, "least": 2, "usable": 5},
}  # fmt: skip


def said(free: int = 0, **changes: Any) -> list[tuple[str, str]]:
    """Levels and texts, with what to do."""
    found = remarks(HEALTHY | changes, free)
    return [(one.level, f"{one.text} {one.do}".strip()) for one in found]


def test_there_is_nothing_to_say_of_a_trainer_that_is_well() -> None:
    assert said() == []


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({"failures": 1}, "advice", "It has failed once. Read"),
        ({"failures": 3, "failed_on": ["n1"]}, "trouble", "3 times in a row on n1. Read"),
        ({"state": "given up", "why": "failed 5 times"}, "trouble", "given up: failed 5 times."),
        ({"left_out": "3 nodes: boom"}, "advice", "without 3 nodes: boom"),
        ({"notice": "n1 has not joined: write 'srun torchrun'"}, "trouble", "srun torchrun"),
        ({"why": "no licence"}, "advice", "cannot have more nodes now: no licence."),
        ({"nodes": [], "plan": {"nodes": 0, "least": 4, "usable": 3}}, "advice", "lower MIN"),
        ({"max_nodes": 3}, "fact", "its MAX of 3 nodes."),
        ({"plan": {"limit": "no gain", "nodes": 3, "least": 2, "usable": 5}}, "advice", "faster"),
        ({"reclaimed": 3}, "fact", "took a node back 3 times in 2.0 node-hours"),
        ({"reclaimed": 30}, "advice", "Save checkpoints every few minutes, and when told to"),
        ({"rescale": {"up": {"seconds": 25.0, "count": 2}}}, "advice", "stands still for 25 s"),
        ({"refused_reports": 2}, "advice", "2 of its reports"),
        ({"samples": None}, "advice", "elastic.step(samples=...)"),
        ({"loss": {"other_ranks": True}}, "advice", "let it write down which samples"),
    ],
)  # fmt: skip
def test_what_is_remarkable_is_said(changes: dict[str, Any], level: str, text: str) -> None:
    ((found, words),) = said(**changes)
    assert found == level
    assert text in words


def test_a_trainer_at_its_most_is_told_of_free_nodes() -> None:
    ((level, text),) = said(free=4, max_nodes=3)
    assert level == "advice"
    assert "4 nodes are free" in text
    assert "higher MAX" in text


def test_a_rescale_that_nobody_has_measured_is_not_blamed() -> None:
    assert said(rescale={"up": {"seconds": 60.0, "count": 0}}) == []


@pytest.mark.parametrize(("part", "word"), [("lost_s", "hung"), ("rescaling_s", "rescaling")])
def test_time_that_goes_elsewhere_is_said(part: str, word: str) -> None:
    goodput = HEALTHY["goodput"] | {part: 1800.0}
    ((level, text),) = said(goodput=goodput)
    assert level == "advice"
    assert text.startswith("It ")
    assert "in 50% of its time with nodes" in text
    assert word in text


def test_nothing_is_made_of_the_first_minutes() -> None:
    young = {"trained_s": 0.0, "rescaling_s": 0.0, "lost_s": 60.0, "with_nodes_s": 60.0}
    assert said(goodput=young, samples=None) == []


def test_what_is_over_gets_no_advice_on_its_size() -> None:
    assert said(state="finished", max_nodes=3, why="x", notice="y") == []


def test_the_gravest_comes_first() -> None:
    levels = [level for level, _ in said(failures=4, reclaimed=1, samples=None)]
    assert levels == ["trouble", "advice", "fact"]


def test_of_others_trainers_no_more_is_said_than_everybody_may_know() -> None:
    secret = HEALTHY | {"failures": 4, "error": "x", "notice": "y", "why": "z", "samples": None}
    seen = shown(secret, own=False, private=False)
    assert seen is not None
    assert remarks(seen, 0) == []
