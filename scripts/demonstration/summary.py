"""What the demo measured: idle and used node-seconds, start delays, what the trainers did."""

from __future__ import annotations

import re
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.demonstration.stream import Outcome

_SAID = re.compile(r"seen=(\d+) world=\d+ test accuracy=([0-9.]+)")


@dataclass(frozen=True)
class TrainerResult:
    """What became of one trainer; ``course`` has (samples, accuracy), as its script said."""

    name: str
    samples: int
    grew: int
    shrank: int
    reclaimed: int
    accuracy: float | None
    course: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Summary:
    """All of it; ``ordinary_start_delay_s`` is in the order of the stream."""

    nodes: int
    seconds: float
    idle_node_s: float
    trainer_node_s: float
    ordinary_start_delay_s: dict[str, list[float]]
    rescale_s: tuple[float, ...]  # how long trainers stood still as nodes came or went
    trainers: tuple[TrainerResult, ...]


def idle_node_s(nodes: int, outcomes: Sequence[Outcome], begin_s: float, end_s: float) -> float:
    """Return the node-seconds of [begin, end] in which no ordinary job ran."""
    busy = sum(
        outcome.job.nodes * _overlap(outcome.start_s, outcome.end_s, begin_s, end_s)
        for outcome in outcomes
    )
    return nodes * (end_s - begin_s) - busy


def used_node_s(history: Path, begin_s: float, end_s: float) -> float:
    """Return the node-seconds of [begin, end] in which an element ran, from the history."""
    with sqlite3.connect(f"file:{history}?mode=ro", uri=True) as database:
        stays = database.execute("SELECT start_s, coalesce(end_s, ?) FROM stays", (end_s,))
        return sum(_overlap(start_s, stop_s, begin_s, end_s) for start_s, stop_s in stays)


def rescale_s(history: Path) -> tuple[float, ...]:
    """Return how long trainers stood still at each change of their nodes, from the history."""
    with sqlite3.connect(f"file:{history}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT seconds FROM rescales ORDER BY time_s").fetchall()
    return tuple(round(seconds, 3) for (seconds,) in rows)


def trainer_result(history: Path, array: int, name: str, folder: Path) -> TrainerResult:
    """Return what a trainer did, from the history and its output in ``folder``."""
    with sqlite3.connect(f"file:{history}?mode=ro", uri=True) as database:
        grew, shrank, reclaimed = database.execute(
            "SELECT count(*), total(how = 'shrank'), total(how = 'reclaimed') "
            "FROM stays WHERE array = ?",
            (array,),
        ).fetchone()
    said = "".join(path.read_text(errors="replace") for path in folder.glob("slurm-*.out"))
    course = tuple(sorted((int(seen), float(right)) for seen, right in _SAID.findall(said)))
    samples, accuracy = course[-1] if course else (0, None)
    return TrainerResult(name, samples, grew, int(shrank), int(reclaimed), accuracy, course)


def render(summary: Summary, stream: Sequence[Outcome]) -> str:
    """Return the summary as it is printed."""
    without = summary.ordinary_start_delay_s["without"]
    with_trainers = summary.ordinary_start_delay_s["with"]
    share = summary.trainer_node_s / summary.idle_node_s
    lines = [
        "",
        f"{summary.nodes} nodes, {summary.seconds:.0f} s",
        f"  idle node-seconds           {summary.idle_node_s:8.1f}",
        f"  of these used by trainers   {summary.trainer_node_s:8.1f}  ({share:.0%})",
        "",
        "start delay of the ordinary jobs, s   without trainers    with    difference",
    ]
    for outcome, before, after in zip(stream, without, with_trainers, strict=True):
        job = outcome.job
        label = f"at {job.at_s:3.0f} s: {job.nodes} nodes for {job.runs_s:.0f} s"
        lines.append(f"  {label:<36}{before:15.2f}{after:9.2f}{after - before:+14.2f}")
    differences = [b - a for a, b in zip(without, with_trainers, strict=True)]
    lines += [
        f"  difference: median {statistics.median(differences):+.2f}, max {max(differences):+.2f}",
        "",
        _rescales(summary.rescale_s),
        "",
        "trainer      samples      grew  shrank  reclaimed  test accuracy",
    ]
    for trainer in summary.trainers:
        accuracy = "-" if trainer.accuracy is None else f"{trainer.accuracy:.3f}"
        lines.append(
            f"{trainer.name:<10}{trainer.samples:>10,}{trainer.grew:>10}{trainer.shrank:>8}"
            f"{trainer.reclaimed:>11}{accuracy:>15}"
        )
        lines.append(f"  on the way: {_course(trainer)}")
    return "\n".join(lines)


def _rescales(times_s: Sequence[float]) -> str:
    if not times_s:
        return "trainers never stood still for a change of their nodes"
    middle, most = statistics.median(times_s), max(times_s)
    return (
        f"trainers stood still at {len(times_s)} changes of their nodes, "
        f"for {middle:.2f} s in the median, {most:.2f} s at most"
    )


def _course(trainer: TrainerResult) -> str:
    step = max(1, len(trainer.course) // 5)
    points = [*trainer.course[::step], *trainer.course[-1:]]
    return "  ".join(f"{samples:,} {accuracy:.3f}" for samples, accuracy in points) or "nothing"


def _overlap(start_s: float, end_s: float, begin_s: float, stop_s: float) -> float:
    return max(0.0, min(end_s, stop_s) - max(start_s, begin_s))
