"""What the demo measured: idle and used node-seconds, start delays, what the trainers did."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median

from bftrainer_slurm.reader.stories import Allocation, allocations_of, open_history
from scripts.benchkit.text import columns, table
from scripts.demonstration.stream import Submitted

_HEADS = ("start delay of the ordinary jobs, s", "without trainers", "with", "difference")
_SAID = re.compile(r"seen=(\d+) world=\d+ test accuracy=([0-9.]+)")


@dataclass(frozen=True)
class TrainerResult:
    """What became of one trainer; ``accuracy`` is the last one that its script printed."""

    name: str
    samples: int
    grew: int
    shrank: int
    reclaimed: int
    accuracy: float | None


@dataclass(frozen=True)
class Summary:
    """All results; ``ordinary_start_delay_s`` is in the order of the stream."""

    nodes: int
    seconds: float
    idle_s: float  # node-seconds
    trainers_s: float  # of them
    ordinary_start_delay_s: dict[str, list[float]]
    rescale_s: tuple[float, ...]  # how long trainers stood still as nodes came or went
    trainers: tuple[TrainerResult, ...]


_OF_TRAINER: Sequence[tuple[str, Callable[[TrainerResult], str]]] = (
    ("trainer", lambda one: one.name),
    ("samples", lambda one: f"{one.samples:,}"),
    ("grew", lambda one: str(one.grew)),
    ("shrank", lambda one: str(one.shrank)),
    ("reclaimed", lambda one: str(one.reclaimed)),
    ("test accuracy", lambda one: "-" if one.accuracy is None else f"{one.accuracy:.3f}"),
)


def summary_of(
    nodes: int,
    begin_s: float,
    streams: dict[str, list[Submitted]],
    history: Path,
    trainers: dict[str, tuple[int, Path]],
) -> Summary:
    """Return the summary.

    ``streams`` are those without and with trainers; the second one began at ``begin_s``.
    ``trainers`` has, by name, their arrays and the folders with their output; ``history`` is the
    controller's.
    """
    jobs = streams["with"]
    end_s = max(one.end_s or 0.0 for one in jobs)
    busy_s = sum(one.job.nodes * ((one.end_s or 0.0) - (one.start_s or 0.0)) for one in jobs)
    with open_history(history) as database:
        had = {name: allocations_of(database, array) for name, (array, _) in trainers.items()}
        query = "SELECT seconds FROM pauses WHERE grew IS NOT NULL ORDER BY time_s"
        pauses = database.execute(query).fetchall()
    return Summary(
        nodes=nodes,
        seconds=end_s - begin_s,
        idle_s=nodes * (end_s - begin_s) - busy_s,
        trainers_s=sum(
            max(0.0, min(one.end_s or end_s, end_s) - max(one.start_s, begin_s))
            for one in chain.from_iterable(had.values())
        ),
        ordinary_start_delay_s={
            name: [round(one.delay_s, 3) for one in stream] for name, stream in streams.items()
        },
        rescale_s=tuple(round(seconds, 3) for (seconds,) in pauses),
        trainers=tuple(
            _trainer(f"{name} ({array})", had[name], folder)
            for name, (array, folder) in trainers.items()
        ),
    )


def _trainer(name: str, had: Sequence[Allocation], folder: Path) -> TrainerResult:
    how = Counter(one.how for one in had)
    said = "".join(path.read_text(errors="replace") for path in folder.glob("slurm-*.out"))
    course = sorted((int(seen), float(right)) for seen, right in _SAID.findall(said))
    samples, accuracy = course[-1] if course else (0, None)
    return TrainerResult(name, samples, len(had), how["shrank"], how["reclaimed"], accuracy)


def render(summary: Summary, stream: Sequence[Submitted]) -> str:
    """Return the summary as text."""
    delays = list(zip(*summary.ordinary_start_delay_s.values(), strict=True))
    differences = [after - before for before, after in delays]
    jobs = [
        (
            f"at {job.at_s:3.0f} s: {job.nodes} nodes for {job.runs_s:.0f} s",
            *(f"{before:.2f}", f"{after:.2f}", f"{after - before:+.2f}"),
        )
        for job, (before, after) in zip([one.job for one in stream], delays, strict=True)
    ]
    pauses = "trainers never stood still for a change of their nodes"
    if times_s := summary.rescale_s:
        pauses = f"trainers stood still at {len(times_s)} changes of their nodes, "
        pauses += f"for {median(times_s):.2f} s in the median, {max(times_s):.2f} s at most"
    share = summary.trainers_s / summary.idle_s
    return f"""
{summary.nodes} nodes, {summary.seconds:.0f} s
  idle node-seconds          {summary.idle_s:8.1f}
  of these used by trainers  {summary.trainers_s:8.1f}  ({share:.0%})

{table([_HEADS, *jobs])}
difference: median {median(differences):+.2f}, max {max(differences):+.2f}

{pauses}

{columns(summary.trainers, _OF_TRAINER)}"""
