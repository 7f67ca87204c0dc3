"""The report that an admin hands to their director."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

from bftrainer_slurm.replay.assessment import words
from bftrainer_slurm.replay.assessment.assess import Assessment
from bftrainer_slurm.replay.assessment.document import document
from bftrainer_slurm.replay.assessment.pictures import pictures, used_over_time
from bftrainer_slurm.replay.assessment.statistics import DELAYS_S, job_delays
from bftrainer_slurm.replay.html import render_template, write_pages
from bftrainer_slurm.words import counted

_FILTERS = (words.duration, words.amount, words.printable, words.percent, words.whole, counted)


def write_report(assessment: Assessment, folder: Path) -> Path:
    """Write ``assessment.html`` and ``assessment.json``; return the former. Raises OSError."""
    return write_pages(folder, "assessment", render(assessment), document(assessment))


def render(assessment: Assessment) -> str:
    """Return the report as one HTML page."""
    return render_template(
        "assessment.html",
        {one.__name__: one for one in _FILTERS},
        assessment=assessment,
        log=assessment.log,
        figures=assessment.statistics,
        felt=job_delays,
        delays=_delays(),
        used_over_time=used_over_time(assessment.replayed, assessment.zone),
        pictures=pictures(assessment.log, assessment.statistics, assessment.zone),
        between=words.between,
        moment=lambda time_s: words.moment(time_s, assessment.zone),
    )


def _delays() -> list[str]:
    """Return the classes of delays in words."""
    later = [*DELAYS_S[1:], math.inf]
    classes = [words.between(*edges) for edges in itertools.pairwise(later)]
    return ["not later", f"by less than {words.duration(later[1])}", *classes[1:]]
