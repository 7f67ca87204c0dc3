"""What ``make paper`` leaves: a page that needs nothing else, and all figures as JSON."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from scripts.benchmark.machine import Machine
from scripts.experiments.catalogue import Experiment, runs_of
from scripts.experiments.measures import Results
from scripts.experiments.pictures import picture


@dataclass(frozen=True, slots=True)
class Report:
    """Experiments whose runs all have results; ``machine`` says where and when it was written."""

    experiments: Sequence[Experiment]
    results: Results
    machine: Machine

    def plans(self) -> Counter[str]:
        """Count the plans of all runs by status."""
        counts: Counter[str] = Counter()
        for run in runs_of(self.experiments):
            counts.update(self.results[run].plans)
        return counts

    def commits(self) -> list[str]:
        """Return the versions of the product that the results are from."""
        return sorted({self.results[run].commit for run in runs_of(self.experiments)})

    def hours(self) -> float:
        """Return how long all runs took, one after the other."""
        return sum(self.results[run].seconds for run in runs_of(self.experiments)) / 3600


def write_report(report: Report, folder: Path) -> Path:
    """Write ``paper.html`` and ``paper.json`` into a folder; return the page. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "paper.html"
    replace_file(page, render(report))
    replace_file(folder / "paper.json", json.dumps(document(report), indent=2) + "\n")
    return page


def render(report: Report) -> str:
    """Return the report as one HTML page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = {
        table.name: _as_source(picture(table, report.results))
        for experiment in report.experiments
        for table in experiment.tables
        if table.drawn
    }
    return environment.get_template("paper.html").render(report=report, pictures=drawn)


def document(report: Report) -> dict[str, Any]:
    """Return all tables, and every run with its result, for JSON."""
    return {
        "machine": asdict(report.machine),
        "commits": report.commits(),
        "plans": dict(report.plans()),
        "tables": [
            {
                "experiment": experiment.number,
                "name": table.name,
                "title": table.title,
                "columns": table.columns,
                "rows": [
                    {"label": row.label, "values": values}
                    for row, values in zip(table.rows, table.values(report.results), strict=True)
                ],
            }
            for experiment in report.experiments
            for table in experiment.tables
        ],
        "runs": [
            {"run": asdict(run), "result": asdict(report.results[run])}
            for run in runs_of(report.experiments)
        ],
    }


def replace_file(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _as_source(svg: str) -> str:
    """An image of its own, so that no two of them clash on the page."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
