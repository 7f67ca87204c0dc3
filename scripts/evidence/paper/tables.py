"""Tables of runs: a cell names a run and what is read off it, so that a table says what to run.

U and U_free are those of ``replay.efficiency``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bftrainer_slurm.replay.drive import Outcome
from scripts.benchkit import text
from scripts.evidence.paper.runs import Others, Results, Run, dedicated, free, papers


@dataclass(frozen=True, slots=True)
class Measure:
    """``of`` reads it off the results of a run and of the ``others`` that it is held against."""

    of: Callable[[Results, Run], float]
    others: tuple[Others, ...] = ()
    decimals: int = 3

    def needs(self, run: Run) -> set[Run]:
        """Return the runs whose results it takes."""
        return {run, *(other(run) for other in self.others)}


def _efficiency(results: Results, run: Run) -> float:
    return results[run].samples / results[dedicated(run)].samples


def _gap_closed(results: Results, run: Run) -> float:
    """Of the gap between the paper's model and U_free."""
    paper = results[_papers_at_recorded_costs(run)].samples
    return (results[run].samples - paper) / (results[free(run)].samples - paper)


def _papers_at_recorded_costs(run: Run) -> Run:
    return replace(papers(run), scale=1.0)


def _lost(name: str) -> Callable[[Results, Run], float]:
    """Samples lost, as a share of those on dedicated nodes: in the units of U."""

    def share(results: Results, run: Run) -> float:
        lost: float = getattr(_outcome(results, run), name)
        return lost / results[dedicated(run)].samples

    return share


def _used(results: Results, run: Run) -> float:
    outcome = _outcome(results, run)
    return outcome.used_node_hours / outcome.idle_node_hours


def _outcome(results: Results, run: Run) -> Outcome:
    outcome = results[run].outcome
    if outcome is None:
        raise ValueError("dedicated nodes have no outcome")
    return outcome


U = Measure(_efficiency, (dedicated,))
MISSING = Measure(lambda results, run: 1 - _efficiency(results, run), (dedicated,))
GAP_CLOSED = Measure(_gap_closed, (_papers_at_recorded_costs, free), decimals=2)
LOST_TO_RESCALING = Measure(_lost("lost_to_rescaling"), (dedicated,))
LOST_TO_RECLAIMS = Measure(_lost("lost_to_reclaims"), (dedicated,))
USED = Measure(_used)
UNUSED = Measure(lambda results, run: 1 - _used(results, run))
POOL = Measure(lambda results, run: _outcome(results, run).mean_pool_nodes, decimals=1)
PLAN_MEDIAN_MS = Measure(lambda results, run: 1e3 * results[run].plan_median_s, decimals=1)
PLAN_P95_MS = Measure(lambda results, run: 1e3 * results[run].plan_p95_s, decimals=1)
MINUTES = Measure(lambda results, run: results[run].seconds / 60, decimals=1)


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure that is measured."""

    run: Run
    measure: Measure


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is that of its picture and of its place in ``docs/paper.md``.

    ``rows`` has by label a cell a column.
    ``drawn``: as lines over the columns, as dots over the rows (their first column), or not.
    """

    name: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    drawn: str = ""

    def runs(self) -> set[Run]:
        """Return all runs that its cells need."""
        cells = (cell for row in self.rows.values() for cell in row)
        return {run for cell in cells for run in cell.measure.needs(cell.run)}

    def values(self, results: Results) -> dict[str, list[float]]:
        """Return the rows as numbers."""
        return {
            label: [cell.measure.of(results, cell.run) for cell in row]
            for label, row in self.rows.items()
        }

    def texts(self, results: Results) -> list[tuple[str, ...]]:
        """Return the rows as text, each with its label."""
        return [
            (label, *map(_shown, self.rows[label], values))
            for label, values in self.values(results).items()
        ]

    def markdown(self, results: Results) -> str:
        """Return it in Markdown."""
        return text.markdown((self.corner, *self.columns), self.texts(results))


def over(
    name: str,
    title: str,
    corner: str,
    columns: Mapping[str, Run],
    rows: Mapping[str, Others],
) -> Table:
    """Return a table of U: a column a run, a row a way to vary it; drawn as lines."""
    filled = {
        label: tuple(Cell(vary(run), U) for run in columns.values()) for label, vary in rows.items()
    }
    return Table(name, title, corner, tuple(columns), filled, "lines")


def of_runs(
    name: str,
    title: str,
    columns: Mapping[str, Measure],
    rows: Mapping[str, Run],
    drawn: str = "",
) -> Table:
    """Return a table of several measures: a row a run."""
    filled = {
        label: tuple(Cell(run, measure) for measure in columns.values())
        for label, run in rows.items()
    }
    return Table(name, title, "", tuple(columns), filled, drawn)


def _shown(cell: Cell, value: float) -> str:
    return f"{value:.{cell.measure.decimals}f}"
