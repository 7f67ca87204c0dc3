"""The report that an admin hands to their director."""

from __future__ import annotations

from pathlib import Path

from bftrainer_slurm.replay.assessment import words
from bftrainer_slurm.replay.assessment.assess import Assessment
from bftrainer_slurm.replay.assessment.document import document
from bftrainer_slurm.replay.assessment.felt import felt
from bftrainer_slurm.replay.assessment.pictures import pictures
from bftrainer_slurm.replay.html import rendered, write_pages

_FILTERS = (words.duration, words.amount, words.printable, words.percent)


def write_report(assessment: Assessment, folder: Path) -> Path:
    """Write ``assessment.html`` and ``assessment.json``; return the former. Raises OSError."""
    return write_pages(folder, "assessment", render(assessment), document(assessment))


def render(assessment: Assessment) -> str:
    """Return the report as one HTML page."""
    return rendered(
        "assessment.html",
        {one.__name__: one for one in _FILTERS},
        assessment=assessment,
        log=assessment.log,
        figures=assessment.statistics,
        felt=felt,
        pictures=pictures(assessment.log, assessment.statistics, assessment.zone),
        between=words.between,
        moment=lambda time_s: words.moment(time_s, assessment.zone),
    )
