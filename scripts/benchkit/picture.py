"""Pictures as SVG, in one style."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

INK, BLUE, ORANGE, GREY, GRID = "#22303c", "#1f5f94", "#d98c2b", "#9aa7b1", "#e3e9ee"
_STYLE: Any = {
    "font.size": 9,
    "svg.hashsalt": "bftrainer",  # the same results give the same file
    "svg.fonttype": "none",  # text stays text: small files, and the reader's own font
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(
        color=[GREY, ORANGE, "#6fb1dd", BLUE, "#5c8a3a", INK],
        marker=["s", "o", "v", "^", "D", "x"],
    ),
}


def drawn(draw: Callable[[Figure], None]) -> str:
    """Return the SVG of what ``draw`` draws on a figure; the same each time."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 3.2), layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
