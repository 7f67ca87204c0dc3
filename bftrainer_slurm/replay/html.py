"""Code of both reports: one self-contained HTML file, and its JSON beside it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure


def write_pages(folder: Path, name: str, page: str, figures: dict[str, Any]) -> Path:
    """Write ``NAME.html`` and ``NAME.json`` into a folder; return the former.

    It makes the folder if necessary, and replaces earlier files. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.html"
    _replace(target, page)
    _replace(folder / f"{name}.json", json.dumps(figures, indent=2) + "\n")
    return target


def rendered(template: str, filters: dict[str, Callable[..., str]], **values: Any) -> str:
    """Return a page; all users' texts in it are escaped."""
    environment = Environment(
        loader=PackageLoader("bftrainer_slurm.replay", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template).render(**values)


def picture(figure: Figure) -> str:
    """Return a picture as an address: it cannot affect the page, and two pictures cannot clash."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(text.getvalue().encode()).decode()


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
