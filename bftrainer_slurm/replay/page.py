"""A replay as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bftrainer_slurm.replay.drive import Timeline
from bftrainer_slurm.replay.html import picture, rendered, write_pages


def write_page(
    folder: Path,
    figures: dict[str, Any],
    timeline: Timeline,
    gpus: dict[str, Any] | None = None,
    rows: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write ``replay.html`` and ``replay.json`` into a folder; return the first.

    ``gpus`` are figures of GPUs, if they are known, and ``rows`` the same in words.

    Raises:
        OSError: it cannot be written.
    """
    rows = [*_rows(figures), *rows]
    page = rendered("replay.html", {}, figures=figures, rows=rows, picture=_picture(timeline))
    return write_pages(folder, "replay", page, figures | {"gpus": gpus})


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    flat = {
        f"{name} {part}" if part else name: number
        for name, entry in figures.items()
        for part, number in (entry.items() if isinstance(entry, dict) else [("", entry)])
    }
    return [(name.replace("_", " "), f"{number:,.4g}") for name, number in flat.items()]


def _picture(timeline: Timeline) -> str:
    figure = Figure(figsize=(10, 3.5), layout="constrained")
    axes = figure.subplots()
    begin_s = timeline.moments[0].time_s if timeline.moments else 0.0
    hours = [(moment.time_s - begin_s) / 3600 for moment in timeline.moments]
    pool = [moment.pool for moment in timeline.moments]
    used = [moment.used for moment in timeline.moments]
    axes.fill_between(hours, pool, step="post", color="#cfd8dc", label="in holes")
    axes.fill_between(hours, used, step="post", color="#1565c0", label="used by trainers")
    axes.set(xlabel="hours", ylabel="nodes", xlim=(0, max(hours, default=1) or 1), ylim=0)
    axes.legend(loc="upper right")
    return picture(figure)
