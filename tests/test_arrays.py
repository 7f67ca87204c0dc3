from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.arrays import format_tasks, parse_tasks

FAR = 1_000_000


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("0", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-4,7,9-11", (0, 1, 2, 3, 4, 7, 9, 10, 11)),
        ("0-4,7%2", (0, 1, 2, 3, 4, 7)),
        ("0-20:10", (0, 10, 20)),
        ("3-3", (3,)),
    ],
)
def test_reads_slurms_notation(text: str, tasks: tuple[int, ...]) -> None:
    assert parse_tasks(text, below=FAR) == tasks


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "1\n", "0x3", "1-2-3", "0-3..."])
def test_refuses_what_is_no_expression(text: str) -> None:
    with pytest.raises(ValueError, match="not an array expression"):
        parse_tasks(text, below=FAR)


def test_a_huge_array_costs_no_more_than_the_bound() -> None:
    assert parse_tasks("0-999999999", below=3) == (0, 1, 2)


@given(st.sets(st.integers(0, 300)))
def test_reads_back_what_it_writes(tasks: set[int]) -> None:
    text = format_tasks(tasks)
    assert parse_tasks(text, below=FAR) == tuple(sorted(tasks)) if tasks else text == ""


def test_writes_ranges() -> None:
    assert format_tasks([7, 0, 1, 2, 9, 10]) == "0-2,7,9-10"
