"""What both reports share: one self-contained HTML file, and its JSON beside it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bftrainer_slurm.pictures import BLUE, svg
from bftrainer_slurm.replay.cluster import Moment
from bftrainer_slurm.replay.trace import HOUR_S


def write_pages(folder: Path, name: str, page: str, figures: dict[str, Any]) -> Path:
    """Write ``NAME.html`` and ``NAME.json`` into a folder; return the former.

    Makes the folder if necessary, and replaces earlier files. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.html"
    _replace(target, page)
    _replace(folder / f"{name}.json", json.dumps(figures, indent=2) + "\n")
    return target


def render_template(template: str, filters: dict[str, Callable[..., str]], **values: Any) -> str:
    """Return a page, with all values escaped."""
    environment = Environment(
        loader=PackageLoader("bftrainer_slurm.replay", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template).render(**values)


def data_url(figure: Figure) -> str:
    """Return a picture as a data URL: it cannot affect the page or clash with another picture."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg(figure).encode()).decode()


def draw_use(axes: Axes, moments: Sequence[Moment], from_s: float, to_s: float) -> None:
    """Draw the numbers of idle nodes, and of nodes used by trainers, over hours."""
    edges_h = (np.array([*(now.time_s for now in moments), to_s]) - from_s) / HOUR_S
    axes.stairs([now.pool for now in moments], edges_h, fill=True, color="#cfe0ee", label="idle")
    used = [now.used for now in moments]
    axes.stairs(used, edges_h, fill=True, color=BLUE, label="used by trainers")
    axes.set(xlim=(0, (to_s - from_s) / HOUR_S), ylim=(0, None))


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
