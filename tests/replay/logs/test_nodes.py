"""Slurm's node lists, also hostile ones."""

from __future__ import annotations

import pytest

from bftrainer_slurm.replay.logs.nodes import MOST_NODES, NodeNumbers, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("a1,b[1-2]-ib", ["a1", "b1-ib", "b2-ib"]),
        ("r[1-2]c[1-2]", ["r1c1", "r1c2", "r2c1", "r2c2"]),
    ],
)
def test_lists_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "n[0-999999999]",
        "n[0-9999][0-9999][0-9999]",
        "n[1-" + "9" * 4000 + "]",
        ",".join(f"n[0-9999]x{k}" for k in range(50)),
        "n[" + ",".join(["1-999999"] * 300) + "]",
    ],
)
def test_a_bomb_is_refused_before_it_expands(text: str) -> None:
    with pytest.raises(ValueError, match=r"more than|not a range"):
        expand(text)


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]", "n[]", "@all", "n1&n2", "n 1", "", "n\x1b[1m"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a node list|not a range"):
        expand(text)


def test_a_node_keeps_its_number() -> None:
    numbers = NodeNumbers()
    assert numbers.of("n[1-2]").tolist() == [0, 1]
    assert numbers.of("n[2-3]").tolist() == [1, 2]
    assert numbers.names == ("n1", "n2", "n3")


def test_with_given_nodes_others_are_passed_over() -> None:
    numbers = NodeNumbers(("n2", "n9"))
    assert numbers.of("n[1-3]").tolist() == [0]
    assert numbers.names == ("n2", "n9")


def test_a_log_cannot_name_more_and_more_nodes() -> None:
    numbers = NodeNumbers()
    numbers.of(f"n[1-{MOST_NODES}]")
    numbers.of("n[1-5]")
    with pytest.raises(ValueError, match="names more than"):
        numbers.of("m1")
