"""Tables of text."""

from __future__ import annotations

from scripts.benchkit.text import columns, markdown, table

ROWS = [("what", "ms", "how"), ("sbatch", "10.5", "")]


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table(ROWS, "<><").splitlines() == ["what      ms  how", "sbatch  10.5"]


def test_figures_stand_to_the_right_unless_it_is_said() -> None:
    assert table(ROWS).splitlines()[0] == "what      ms  how"


def test_markdown() -> None:
    assert markdown(*ROWS[:1], ROWS[1:]).splitlines() == [
        "| what | ms | how |",
        "|---|---:|---:|",
        "| sbatch | 10.5 |  |",
    ]


def test_a_table_of_columns_has_a_head_and_a_row_for_each() -> None:
    said = columns([1, 20], [("ONE", str), ("TWICE", lambda one: str(2 * one))])
    assert said.splitlines() == ["ONE  TWICE", "1        2", "20      40"]
