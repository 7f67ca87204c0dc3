"""Tables of runs: a cell names a run and what is read off it, so that a table says what to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scripts.experiments.measures import Measure, Others, Results, U
from scripts.experiments.runs import Run


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure that is measured."""

    run: Run
    measure: Measure

    def value(self, results: Results) -> float:
        """Return the figure."""
        return self.measure.of(results, self.run)

    def shown(self, results: Results) -> str:
        """Return it as text."""
        return f"{self.value(results):.{self.measure.decimals}f}"


@dataclass(frozen=True, slots=True)
class Row:
    """A label, and a cell a column: measured, given (a number from elsewhere), or none."""

    label: str
    cells: tuple[Cell | float | None, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is that of its picture and of its place in ``docs/paper.md``.

    ``drawn``: as lines over the columns, as dots over the rows (their first column), or not.
    """

    name: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    drawn: str = ""

    def runs(self) -> set[Run]:
        """Return all runs that its cells need."""
        cells = (cell for row in self.rows for cell in row.cells if isinstance(cell, Cell))
        return {run for cell in cells for run in cell.measure.needs(cell.run)}

    def texts(self, results: Results) -> list[tuple[str, list[str]]]:
        """Return the rows as text."""
        return [(row.label, [_text(cell, results) for cell in row.cells]) for row in self.rows]

    def values(self, results: Results) -> list[list[float | None]]:
        """Return the rows as numbers."""
        return [
            [cell.value(results) if isinstance(cell, Cell) else cell for cell in row.cells]
            for row in self.rows
        ]


def over(
    name: str,
    title: str,
    corner: str,
    columns: Mapping[str, Run],
    rows: Mapping[str, Others],
    measure: Measure = U,
) -> Table:
    """Return the table of one measure: a column a run, a row a way to vary it; drawn as lines."""
    filled = tuple(
        Row(label, tuple(Cell(vary(run), measure) for run in columns.values()))
        for label, vary in rows.items()
    )
    return Table(name, title, corner, tuple(columns), filled, "lines")


def of_runs(
    name: str,
    title: str,
    corner: str,
    columns: Mapping[str, Measure],
    rows: Mapping[str, Run],
    drawn: str = "",
) -> Table:
    """Return the table of several measures: a row a run."""
    filled = tuple(
        Row(label, tuple(Cell(run, measure) for measure in columns.values()))
        for label, run in rows.items()
    )
    return Table(name, title, corner, tuple(columns), filled, drawn)


def _text(cell: Cell | float | None, results: Results) -> str:
    if cell is None:
        return ""
    return cell.shown(results) if isinstance(cell, Cell) else f"{cell:g}"
