"""What ``make paper`` leaves: a page in Markdown, its JSON, and tables of docs/internals/paper.md.

In that page the words are written by hand. A table goes between ``<!-- table NAME -->`` and
``<!-- end -->``, what was run on between ``<!-- made -->`` and ``<!-- end -->``; pictures go to
``figures/paper-NAME.svg``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.catalogue import Experiment, runs_of
from experiments.paper.runs import Results, Run
from experiments.paper.tables import Table
from scripts.benchkit.command import json_text, replace_file
from scripts.benchkit.machine import Machine
from scripts.benchkit.picture import BLUE, GRID, drawn

_PLACE = re.compile(r"<!-- (table ([\w-]+)|made) -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Report:
    """Experiments whose runs all have results; ``machine`` says where and when it was written."""

    experiments: Sequence[Experiment]
    results: Results
    machine: Machine

    @property
    def runs(self) -> list[Run]:
        """All runs that it shows."""
        return runs_of(self.experiments)

    @property
    def tables(self) -> dict[str, Table]:
        """All tables, by name."""
        return {table.name: table for one in self.experiments for table in one.tables}

    @property
    def plans(self) -> Counter[str]:
        """The plans of all runs, counted by status."""
        return sum((Counter(self.results[run].plans) for run in self.runs), Counter[str]())

    @property
    def commits(self) -> list[str]:
        """The versions of the product that the results are from."""
        return sorted({self.results[run].commit for run in self.runs})

    @property
    def made(self) -> str:
        """How, when and where the results were made."""
        hours = sum(self.results[run].seconds for run in self.runs) / 3600
        plans = ", ".join(f"{count:,} {status}" for status, count in self.plans.items())
        return (
            f"{self.machine}. {hours:.1f} hours of replays on one core, by version "
            f"{', '.join(self.commits)}. Plans: {plans}."
        )


def write_report(report: Report, folder: Path) -> str:
    """Write ``paper.md`` and ``paper.json`` into a folder; return the page. Raises OSError."""
    lines = ["# The BFTrainer paper's experiments, repeated", "", report.made]
    for experiment in report.experiments:
        lines += ["", f"## {experiment.number}. {experiment.title}", "", experiment.about]
        for table in experiment.tables:
            lines += ["", f"### {table.title}", "", table.markdown(report.results)]
    page = "\n".join(lines)
    replace_file(folder / "paper.md", page + "\n")
    replace_file(folder / "paper.json", json_text(document(report)) + "\n")
    return page


def document(report: Report) -> dict[str, Any]:
    """Return all tables, and every run with its result, for JSON."""
    return {
        "machine": report.machine,
        "commits": report.commits,
        "plans": report.plans,
        "tables": [
            {
                "experiment": experiment.number,
                "name": table.name,
                "title": table.title,
                "columns": table.columns,
                "rows": [
                    {"label": label, "values": values}
                    for label, values in table.values(report.results).items()
                ],
            }
            for experiment in report.experiments
            for table in experiment.tables
        ],
        "runs": [{"run": run, "result": report.results[run]} for run in report.runs],
    }


def refresh_page(page: Path, report: Report) -> None:
    """Renew the tables of a page that the report has, and their pictures. Raises OSError."""
    tables = report.tables

    def renewed(place: re.Match[str]) -> str:
        if place[1] == "made":
            text = report.made
        elif place[2] in tables:
            text = tables[place[2]].markdown(report.results)
        else:
            return place[0]
        return f"<!-- {place[1]} -->\n{text}\n<!-- end -->"

    before = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"\(figures/paper-([\w-]+)\.svg\)", before)) & tables.keys():
        target = page.parent / "figures" / f"paper-{name}.svg"
        replace_file(target, picture(tables[name], report.results))
    replace_file(page, _PLACE.sub(renewed, before))


def picture(table: Table, results: Results) -> str:
    """Return the picture of a table that is ``drawn``, as SVG."""
    draw = {"lines": _lines, "dots": _dots}[table.drawn]

    def on(figure: Figure) -> None:
        axes = figure.subplots()
        draw(axes, table, table.values(results))
        axes.set(title=table.title)
        axes.grid(axis="y", color=GRID)

    return drawn(on)


def _lines(axes: Axes, table: Table, rows: dict[str, list[float]]) -> None:
    for label, values in rows.items():
        axes.plot(range(len(values)), values, label=label)
    axes.set_xticks(range(len(table.columns)), table.columns)
    axes.set(xlabel=table.corner)
    if len(rows) > 1:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _dots(axes: Axes, table: Table, rows: dict[str, list[float]]) -> None:
    """Draw dots, since the steps are small: bars would have to begin at 0."""
    values = [row[0] for row in rows.values()]
    axes.plot(values, range(len(values)), "o", color=BLUE)
    for place, value in enumerate(values):
        axes.annotate(f"{value:.3f}", (value, place), (6, -3), textcoords="offset points")
    axes.set_yticks(range(len(values)), list(rows))
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(xlabel=table.columns[0])
