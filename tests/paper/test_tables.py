"""A table says what is to be run, and shows it as text, numbers and Markdown."""

from __future__ import annotations

from experiments.paper import tables as measures
from experiments.paper.runs import dedicated, free, papers
from experiments.paper.tables import U, of_runs, over
from tests.paper.made import RESULTS, RUN

BY_METHOD = over("t", "Title", "", {"a": RUN}, {"ours": lambda run: run, "paper": papers})


def test_a_table_needs_the_runs_of_its_cells_and_what_they_are_held_against() -> None:
    assert BY_METHOD.runs() == {RUN, papers(RUN), dedicated(RUN)}


def test_each_measure_is_a_column() -> None:
    table = of_runs("t", "Title", {"U": U, "used": measures.USED}, {"free": free(RUN)})
    assert table.values(RESULTS) == {"free": [0.9, 0.9]}


def test_markdown() -> None:
    assert BY_METHOD.markdown(RESULTS).splitlines() == [
        "|  | a |",
        "|---|---:|",
        "| ours | 0.850 |",
        "| paper | 0.800 |",
    ]
