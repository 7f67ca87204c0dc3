"""Pictures of tables, as SVG: lines over the columns, or dots over the rows."""

from __future__ import annotations

from io import StringIO
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.experiments.measures import Results
from scripts.experiments.tables import Table

_INK = "#22303c"
STYLE: Any = {
    "font.size": 9,
    "svg.hashsalt": "bftrainer",  # the same results give the same file
    "svg.fonttype": "none",  # text stays text: small files, and the reader's own font
    "axes.edgecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(
        color=["#9aa7b1", "#d98c2b", "#6fb1dd", "#1f5f94", "#5c8a3a", _INK],
        marker=["s", "o", "v", "^", "D", "x"],
    ),
}


def picture(table: Table, results: Results) -> str:
    """Return the picture of a table that is ``drawn``."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 3.2), layout="constrained")
        axes = figure.subplots()
        {"lines": _lines, "dots": _dots}[table.drawn](axes, table, results)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _lines(axes: Axes, table: Table, results: Results) -> None:
    for row, values in zip(table.rows, table.values(results), strict=True):
        points = [(place, value) for place, value in enumerate(values) if value is not None]
        axes.plot(*zip(*points, strict=True), label=row.label)
    axes.set_xticks(range(len(table.columns)), table.columns)
    axes.set(xlabel=table.corner, title=table.title)
    axes.grid(axis="y", color="#e3e9ee")
    if len(table.rows) > 1:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _dots(axes: Axes, table: Table, results: Results) -> None:
    """Draw dots, since the steps are small: bars would have to begin at 0."""
    values = [row[0] or 0.0 for row in table.values(results)]
    places = range(len(values))
    axes.plot(values, places, "o", color="#1f5f94")
    for place, value in zip(places, values, strict=True):
        axes.annotate(f"{value:.3f}", (value, place), (6, -3), textcoords="offset points")
    axes.set_yticks(places, [row.label for row in table.rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.grid(axis="y", color="#e3e9ee")
    axes.set(title=table.title, xlabel=table.columns[0])
