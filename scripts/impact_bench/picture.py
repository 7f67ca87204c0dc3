"""The picture: how many jobs start within how long, without trainers and with them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.experiments.pictures import STYLE

_LEAST_S = 0.05  # an axis of logarithms has no zero
_WITHOUT, _WITH = "#9aa7b1", "#d98c2b"


def picture(off_s: Sequence[float], on_s: Sequence[float]) -> str:
    """Return an SVG of the delays of the same jobs, in seconds: both sides, and the differences."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        for times_s, label, colour in (
            (off_s, "without trainers", _WITHOUT),
            (on_s, "with trainers", _WITH),
        ):
            _steps(left, [max(_LEAST_S, one) for one in times_s], colour, label)
        left.set_xscale("log")
        left.set(xlabel="start delay, s", ylabel="share of the jobs", title="started within")
        left.legend(frameon=False, loc="lower right")
        differences = [other - one for one, other in zip(off_s, on_s, strict=True)]
        _steps(right, differences, "#1f5f94", "")
        right.set_xscale("symlog", linthresh=1.0)
        right.axvline(0, color="#22303c", linewidth=0.6)
        right.set(xlabel="delay with trainers less delay without, s", title="difference of a job")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _steps(axes: Axes, values: Sequence[float], colour: str, label: str) -> None:
    ordered = sorted(values)
    shares = [(rank + 1) / len(ordered) for rank in range(len(ordered))]
    axes.step(ordered, shares, where="post", color=colour, label=label, marker="")
    axes.set_ylim(0, 1.02)
    axes.grid(color="#e3e9ee")
