"""Tables of text."""

from __future__ import annotations

from scripts.benchkit.text import markdown, table

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
