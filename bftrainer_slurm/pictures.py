"""The style of all pictures: of reports and of benchmarks. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK, BLUE = "#22303c", "#2a78b5"


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """Draw in this style, with ``more`` settings of matplotlib (``_`` for a dot in their names).

    Nothing of a user's matplotlibrc counts.
    """
    common: dict[Any, Any] = {
        "font.size": 9,
        "svg.hashsalt": "bftrainer",  # the same figures give the same file
        "svg.fonttype": "none",  # text stays text: small files, and the reader's own font
        "text.parse_math": False,  # a $ in a name is no formula
        "axes.edgecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(common | {name.replace("_", ".", 1): more[name] for name in more})
        yield


def svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
