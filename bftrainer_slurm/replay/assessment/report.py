"""The report that an admin hands to their director: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from bftrainer_slurm.replay.assessment import words
from bftrainer_slurm.replay.assessment.assess import Assessment
from bftrainer_slurm.replay.assessment.document import document
from bftrainer_slurm.replay.assessment.felt import felt
from bftrainer_slurm.replay.assessment.pictures import pictures


def write_report(assessment: Assessment, folder: Path) -> Path:
    """Write ``assessment.html`` and ``assessment.json`` into a folder; return the HTML file.

    The folder is made where there is none; earlier reports in it are replaced. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "assessment.html"
    _replace(page, render(assessment))
    _replace(folder / "assessment.json", json.dumps(document(assessment), indent=2) + "\n")
    return page


def render(assessment: Assessment) -> str:
    """Return the report as one HTML page; whatever came from the log is escaped in it."""
    environment = Environment(
        loader=PackageLoader("bftrainer_slurm.replay.assessment", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=words.duration,
        amount=words.amount,
        printable=words.printable,
        percent=words.percent,
    )
    drawn = pictures(assessment.log, assessment.statistics, assessment.zone)
    return environment.get_template("assessment.html").render(
        assessment=assessment,
        log=assessment.log,
        figures=assessment.statistics,
        felt=felt,
        pictures={name: _as_source(svg) for name, svg in drawn.items()},
        between=words.between,
        moment=lambda time_s: words.moment(time_s, assessment.zone),
    )


def _as_source(svg: str) -> str:
    """An image of its own, so that nothing in it can reach the page, nor two of them clash."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
