"""A replay as one HTML file that needs nothing else, and its JSON beside it."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from bftrainer_slurm.replay.timeline import Timeline


def write_page(folder: Path, figures: dict[str, Any], timeline: Timeline) -> Path:
    """Write ``replay.html`` and ``replay.json`` into a folder; return the first. Raises OSError."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("bftrainer_slurm.replay", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    page = environment.get_template("replay.html").render(
        figures=figures, rows=list(_rows(figures)), picture=_picture(timeline)
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "replay.json").write_text(json.dumps(figures, indent=2) + "\n")
    target = folder / "replay.html"
    target.write_text(page)
    return target


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    flat = {
        f"{name} {part}" if part else name: number
        for name, entry in figures.items()
        for part, number in (entry.items() if isinstance(entry, dict) else [("", entry)])
    }
    return [(name.replace("_", " "), f"{number:,.4g}") for name, number in flat.items()]


def _picture(timeline: Timeline) -> str:
    from matplotlib.figure import Figure

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
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return "data:image/svg+xml;base64," + base64.b64encode(text.getvalue().encode()).decode()
