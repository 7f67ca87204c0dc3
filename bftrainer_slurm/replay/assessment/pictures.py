"""Pictures of holes and their use, as SVG without any text from the log, for a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bftrainer_slurm.pictures import BLUE, style
from bftrainer_slurm.replay.assessment.harvest import Replayed
from bftrainer_slurm.replay.assessment.statistics import Statistics
from bftrainer_slurm.replay.assessment.words import WEEKDAYS, between, moment
from bftrainer_slurm.replay.html import data_url, draw_use
from bftrainer_slurm.replay.logs.holes import Columns, idle_seconds
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.words import natural

_COLOURS = "Blues"
_ROWS, _COLUMNS = 240, 900  # rows of the picture of holes; more would not be visible
_DAY_S = 86400.0  # matplotlib's dates are days since 1970


def pictures(log: Log, statistics: Statistics, zone: tzinfo) -> dict[str, str]:
    """Return their addresses, by name: ``over_time``, ``holes``, ``lengths``, ``by_hour``."""
    with style():
        return {
            "over_time": _over_time(log, zone),
            "holes": _holes(log, zone),
            "lengths": _lengths(statistics),
            "by_hour": _by_hour(statistics.by_hour),
        }


def used_over_time(replayed: Sequence[Replayed], zone: tzinfo) -> str:
    """Return a picture of nodes idle and used, in the parts that were replayed; "" without any.

    If several numbers of trainers were replayed, it is the first.
    """
    shown = [one for one in replayed if one.options == replayed[0].options and one.result.moments]
    if not shown:
        return ""
    with style():
        figure = Figure(figsize=(9, 2.4), layout="constrained")
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for one, axes in zip(shown, panels, strict=True):
            draw_use(axes, one.result.moments, one.sample.from_s, one.sample.to_s)
            axes.set_xlabel(f"hours from {moment(one.sample.from_s, zone)[5:16]}")
        panels[0].set_ylabel("nodes")
        labelled = panels[0].get_legend_handles_labels()
        figure.legend(*labelled, loc="outside upper right", ncols=2, frameon=False)
        return data_url(figure)


def _over_time(log: Log, zone: tzinfo) -> str:
    columns = Columns(log.from_s, (log.to_s - log.from_s) / _COLUMNS, _COLUMNS)
    idle = idle_seconds(log.holes, columns)[0] / columns.width_s
    figure, axes = _figure(2.2)
    edges = columns.from_s + columns.width_s * np.arange(_COLUMNS + 1)
    axes.stairs(idle, edges / _DAY_S, fill=True, color=BLUE)
    axes.set(ylabel="idle nodes", ylim=(0, None))
    _time_axis(axes, log, zone)
    return data_url(figure)


def _holes(log: Log, zone: tzinfo) -> str:
    names = log.holes.nodes
    rows = min(_ROWS, len(names))
    in_order = sorted(range(len(names)), key=lambda number: natural(names[number]))
    row = np.empty(len(names), np.int64)
    row[in_order] = np.arange(len(row)) * rows // len(row)
    columns = Columns(log.from_s, (log.to_s - log.from_s) / _COLUMNS, _COLUMNS)
    full_s = np.bincount(row, minlength=rows)[:, None] * columns.width_s
    figure, axes = _figure(3.6)
    image = axes.imshow(
        idle_seconds(log.holes, columns, row, rows) / full_s,
        cmap=_COLOURS,
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
        extent=(log.from_s / _DAY_S, log.to_s / _DAY_S, len(row), 0),
    )
    axes.set(ylabel="nodes, by name")
    _time_axis(axes, log, zone)
    figure.colorbar(image, label="share of the time idle", pad=0.01)
    return data_url(figure)


def _lengths(statistics: Statistics) -> str:
    classes = statistics.lengths
    figure, axes = _figure(2.6)
    place = np.arange(len(classes))
    for offset, colour, label, amounts in (
        (-0.2, "#9cc4e4", "of the holes", [one.holes for one in classes]),
        (0.2, BLUE, "of the idle node-hours", [one.node_hours for one in classes]),
    ):
        share = 100 * np.array(amounts, float) / max(sum(amounts), 1e-12)
        axes.bar(place + offset, share, 0.4, color=colour, label=label)
    axes.set_xticks(place, [between(one.from_s, one.to_s) for one in classes], rotation=20)
    axes.set(ylabel="per cent", xlabel="length of the hole")
    axes.legend(frameon=False)
    return data_url(figure)


def _by_hour(mean: NDArray[np.float64]) -> str:
    figure, axes = _figure(2.4)
    image = axes.imshow(mean, cmap=_COLOURS, vmin=0, aspect="auto")
    axes.set_yticks(range(7), WEEKDAYS)
    axes.set_xticks(range(0, 24, 3))
    axes.set(xlabel="hour of the day")
    figure.colorbar(image, label="idle nodes, mean", pad=0.01)
    return data_url(figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, figure.subplots()


def _time_axis(axes: Axes, log: Log, zone: tzinfo) -> None:
    axes.set_xlim(log.from_s / _DAY_S, log.to_s / _DAY_S)
    axes.xaxis_date(zone)
