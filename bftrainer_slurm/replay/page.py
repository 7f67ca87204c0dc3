"""A replay as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bftrainer_slurm.pictures import style
from bftrainer_slurm.replay.cluster import Moment
from bftrainer_slurm.replay.html import data_url, draw_use, render_template, write_pages


def write_page(
    folder: Path,
    document: dict[str, Any],
    rows: Sequence[tuple[str, str]],
    moments: Sequence[Moment],
    span_s: tuple[float, float],
) -> Path:
    """Write ``replay.html`` and ``replay.json`` into a folder; return the first.

    ``rows`` are the figures in words, ``span_s`` is the replayed time (Unix seconds).

    Raises:
        OSError: a file cannot be written.
    """
    with style():
        figure = Figure(figsize=(10, 3.5), layout="constrained")
        axes = figure.subplots()
        draw_use(axes, moments, *span_s)
        axes.set(xlabel="hours", ylabel="nodes")
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
        address = data_url(figure)
    page = render_template("replay.html", {}, figures=document, rows=rows, picture=address)
    return write_pages(folder, "replay", page, document)
