"""Draws one trainer's history: in the terminal, as PNG or as SVG.

It draws a document of ``reader.stories``: nodes over time, samples, reclaims, rescale costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer_slurm.cli.chart import MARGIN, bars
from bftrainer_slurm.cli.common import identity, safe
from bftrainer_slurm.cli.terminal import date

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
_NODES, _SAMPLES, _LOSS = "#2a78b5", "#3a7d44", "#c0392b"


def drawn(one: Mapping[str, Any], columns: int, *, blocks: bool = True) -> Iterator[str]:
    """Give lines of at most so many columns."""
    room = max(20, columns - MARGIN)
    over_time = partial(_in_parts, one["from_s"], one["until_s"], room)
    yield from bars(one["course"]["nodes"], room, "nodes", blocks=blocks)
    taken = over_time((each["time_s"], len(each["reclaimed"])) for each in one["changes"])
    if any(taken):
        marks = "".join("v" if count else " " for count in taken)
        yield f"{'reclaimed':>{MARGIN - 2}} |{marks}".rstrip()
    if one.get("samples"):
        long_s = max(1.0, float(one["until_s"] - one["from_s"]))
        ends = [one["from_s"] + part * long_s / room for part in range(1, room + 1)]
        yield from bars(_samples_at(one, ends), room, "samples", blocks=blocks)
    if one.get("rescales"):
        paused = over_time((each["time_s"], each["seconds"]) for each in one["rescales"])
        yield from bars(paused, room, "s paused", blocks=blocks)
    begin, end = date(one["from_s"]), date(one["until_s"])
    yield f"{'':{MARGIN}}{begin}{end:>{max(len(end) + 1, room - len(begin))}}"


def write_picture(one: Mapping[str, Any], path: Path) -> None:
    """Write a PNG or SVG file, by the ending of its name.

    Raises:
        OSError: the file cannot be written.
    """
    from bftrainer_slurm.pictures import style, svg

    with style():
        figure = _figure(one)
        if path.suffix.lower() == ".svg":
            path.write_text(svg(figure), encoding="utf-8")
        else:
            figure.savefig(path, format="png", dpi=150)


def _figure(one: Mapping[str, Any]) -> Figure:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    kinds = [name for name in ("samples", "rescales") if one.get(name)]
    figure = Figure(figsize=(9, 2.2 + 1.8 * len(kinds)), layout="constrained")
    axes = figure.subplots(1 + len(kinds), 1, sharex=True, squeeze=False)[:, 0]
    over = f": {safe(one['over'], 100)}" if one.get("over") else ""
    figure.suptitle(f"trainer {identity(one)}{over}")
    _draw_nodes(axes[0], one)
    for axis, name in zip(axes[1:], kinds, strict=True):
        times = _times([each["time_s"] for each in one[name]])
        if name == "samples":
            axis.plot(times, [each["samples"] for each in one[name]], color=_SAMPLES)
            axis.set(ylabel="samples", ylim=(0, None))
        else:
            axis.vlines(times, 0, [each["seconds"] for each in one[name]], color=_LOSS)
            axis.set(ylabel="rescaling (s)", ylim=(0, None))
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes[-1].xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    axes[-1].xaxis.set_major_formatter(formatter)
    figure.draw_without_rendering()
    return figure


def _draw_nodes(axes: Axes, one: Mapping[str, Any]) -> None:
    part_s, nodes = one["course"]["part_s"], one["course"]["nodes"]
    begins = [one["from_s"] + part_s * part for part in range(len(nodes))]
    edges = [*begins, begins[-1] + part_s]
    axes.fill_between(_times(edges), [*nodes, nodes[-1]], step="post", color=_NODES, linewidth=0)  # type: ignore[arg-type]
    taken = [change for change in one["changes"] if change["reclaimed"]]
    if taken:
        times = _times([change["time_s"] for change in taken])
        after = [change["nodes"] for change in taken]
        axes.plot(times, after, "v", color=_LOSS, markersize=5, label="reclaimed")  # type: ignore[arg-type]
        axes.legend(loc="upper left", frameon=False)
    axes.set(ylabel="nodes", ylim=(0, None))


def _times(seconds: Sequence[float]) -> list[datetime]:
    return [datetime.fromtimestamp(one) for one in seconds]


def _in_parts(
    from_s: float, until_s: float, parts: int, events: Iterable[tuple[float, float]]
) -> list[float]:
    """Return the sum of events (pairs of time and amount) in each part of the time."""
    sums = [0.0] * parts
    for time_s, amount in events:
        place = int(parts * (time_s - from_s) / max(1.0, until_s - from_s))
        sums[min(parts - 1, max(0, place))] += amount
    return sums


def _samples_at(one: Mapping[str, Any], ends: Sequence[float]) -> list[float]:
    """Return how many samples the trainer had at the end of each part.

    Before its first report that is 0 if its whole life is shown, else the number in that report.
    """
    times = [point["time_s"] for point in one["samples"]]
    so_far = [point["samples"] for point in one["samples"]]
    so_far.insert(0, 0.0 if one.get("goodput") else so_far[0])
    return [so_far[bisect_right(times, end_s)] for end_s in ends]
