"""Pictures of benchmarks as SVG, in the style of all pictures."""

from __future__ import annotations

from collections.abc import Callable

from cycler import cycler
from matplotlib.figure import Figure

from bftrainer_slurm.pictures import INK, style, svg

BLUE, GRID = "#1f5f94", "#e3e9ee"
_LINES = cycler(
    color=["#9aa7b1", "#d98c2b", "#6fb1dd", BLUE, "#5c8a3a", INK],
    marker=["s", "o", "v", "^", "D", "x"],
)


def drawn(draw: Callable[[Figure], None]) -> str:
    """Return the SVG of what ``draw`` draws on a figure; the same each time."""
    with style(axes_prop_cycle=_LINES):
        figure = Figure(figsize=(7.5, 3.2), layout="constrained")
        draw(figure)
        return svg(figure)
