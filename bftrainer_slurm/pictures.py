"""The style of all pictures: of reports and of benchmarks. Needs matplotlib."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK, BLUE = "#22303c", "#2a78b5"


def style(**more: Any) -> AbstractContextManager[None]:
    """Draw in this style, with ``more`` settings of matplotlib (``_`` for a dot in their names)."""
    common: dict[Any, Any] = {
        "font.size": 9,
        "svg.hashsalt": "bftrainer",  # the same figures give the same file
        "svg.fonttype": "none",  # text stays text: small files, and the reader's own font
        "text.parse_math": False,  # a $ in a name is no formula
        "axes.edgecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    return mpl.rc_context(common | {name.replace("_", ".", 1): more[name] for name in more})


def svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
