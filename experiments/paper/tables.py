"""Tables of runs: a cell names a run and what is read off it, so that a table says what to run.

U and U_free are those of ``replay.efficiency``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bftrainer_slurm.replay.drive import Outcome
from experiments.paper.runs import Results, Run, Way, dedicated, free, papers
from scripts.benchkit import text

_LABELS = {"hpo-1000": "HPO", "imagenet-1001": "ImageNet"}  # of trainers


@dataclass(frozen=True, slots=True)
class Measure:
    """``of`` reads it off the results of a run, and of the one on dedicated nodes."""

    of: Callable[[Results, Run], float]
    decimals: int = 3


def _efficiency(results: Results, run: Run) -> float:
    return results[run].samples / results[dedicated(run)].samples


def _gap_closed(results: Results, run: Run) -> float:
    """Of the gap between the paper's model and U_free, which are in the same table."""
    paper = results[replace(papers(run), scale=1.0)].samples
    return (results[run].samples - paper) / (results[free(run)].samples - paper)


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


U = Measure(_efficiency)
MISSING = Measure(lambda results, run: 1 - _efficiency(results, run))
GAP_CLOSED = Measure(_gap_closed, decimals=2)
LOST_TO_RESCALING = Measure(_lost("lost_to_rescaling"))
LOST_TO_RECLAIMS = Measure(_lost("lost_to_reclaims"))
USED = Measure(_used)
UNUSED = Measure(lambda results, run: 1 - _used(results, run))
PLAN_MEDIAN_MS = Measure(lambda results, run: 1e3 * results[run].plan_median_s, decimals=1)
PLAN_P95_MS = Measure(lambda results, run: 1e3 * results[run].plan_p95_s, decimals=1)
MINUTES = Measure(lambda results, run: results[run].seconds / 60, decimals=1)


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is its place in ``docs/internals/paper.md``.

    ``rows`` has by label a cell a column: a run, and what is measured of it.
    """

    name: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[tuple[Run, Measure], ...]]

    def runs(self) -> set[Run]:
        """Return all runs that its cells need, those on dedicated nodes too."""
        shown = {run for row in self.rows.values() for run, _ in row}
        return shown | set(map(dedicated, shown))

    def values(self, results: Results) -> dict[str, list[float]]:
        """Return the rows as numbers."""
        return {
            label: [measure.of(results, run) for run, measure in row]
            for label, row in self.rows.items()
        }

    def markdown(self, results: Results) -> str:
        """Return it in Markdown."""
        rows = (
            (label, *(f"{one.of(results, run):.{one.decimals}f}" for run, one in row))
            for label, row in self.rows.items()
        )
        return text.markdown((self.corner, *self.columns), rows)


def table(
    base: Run,
    name: str,
    title: str,
    corner: str,
    columns: Iterable[str],
    rows: Mapping[str, tuple[tuple[Run, Measure], ...]],
) -> Table:
    """Return a table of variations of a run, whose trainers its name and title tell."""
    titled = title.format(trainers=_LABELS[base.trainers], at_once=base.at_once)
    return Table(f"{name}-{base.trainers}", titled, corner, tuple(columns), rows)


def over(
    base: Run,
    name: str,
    title: str,
    columns: Mapping[str, Run],
    rows: Mapping[str, Way],
    corner: str = "",
) -> Table:
    """Return a table of U: a column a run, a row a way to vary it."""
    cells = {row: tuple((vary(run), U) for run in columns.values()) for row, vary in rows.items()}
    return table(base, name, title, corner, columns, cells)


def of_runs(
    base: Run, name: str, title: str, columns: Mapping[str, Measure], rows: Mapping[str, Run]
) -> Table:
    """Return a table of several measures: a row a run."""
    cells = {row: tuple((run, one) for one in columns.values()) for row, run in rows.items()}
    return table(base, name, title, "", columns, cells)
