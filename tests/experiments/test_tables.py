"""A table says what is to be run, and shows it as text, numbers and Markdown."""

from __future__ import annotations

from scripts.experiments import measures
from scripts.experiments.measures import U
from scripts.experiments.pages import markdown
from scripts.experiments.runs import dedicated, free, papers
from scripts.experiments.tables import Cell, Row, Table, of_runs, over
from tests.experiments.made import RESULTS, RUN

BY_METHOD = over("t", "Title", "", {"a": RUN}, {"ours": lambda run: run, "paper": papers})


def test_a_table_needs_the_runs_of_its_cells_and_what_they_are_held_against() -> None:
    assert BY_METHOD.runs() == {RUN, papers(RUN), dedicated(RUN)}


def test_each_way_to_vary_a_run_is_a_row() -> None:
    assert BY_METHOD.texts(RESULTS) == [("ours", ["0.850"]), ("paper", ["0.800"])]


def test_each_measure_is_a_column() -> None:
    table = of_runs("t", "Title", "", {"U": U, "used": measures.USED}, {"free": free(RUN)})
    assert table.values(RESULTS) == [[0.9, 0.9]]


def test_given_figures_stand_beside_measured_ones() -> None:
    table = Table(
        "t", "Title", "", ("given", "here", "none"), (Row("x", (0.5, Cell(RUN, U), None)),)
    )
    assert table.texts(RESULTS) == [("x", ["0.5", "0.850", ""])]
    assert table.runs() == {RUN, dedicated(RUN)}


def test_markdown() -> None:
    assert markdown(BY_METHOD, RESULTS).splitlines() == [
        "|  | a |",
        "|---|---:|",
        "| ours | 0.850 |",
        "| paper | 0.800 |",
    ]
