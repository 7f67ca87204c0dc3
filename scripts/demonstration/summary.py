"""What the demo measured: idle and used node-seconds, start delays, what the trainers did."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bftrainer_slurm.reader.stories import allocations_of, open_history
from scripts.benchkit.text import table
from scripts.demonstration.stream import Submitted

_SAID = re.compile(r"seen=(\d+) world=\d+ test accuracy=([0-9.]+)")


@dataclass(frozen=True)
class Summary:
    """All results; ``ordinary_start_delay_s`` is in the order of the stream."""

    nodes: int
    seconds: float
    idle_s: float  # node-seconds
    trainers_s: float  # of them
    ordinary_start_delay_s: Mapping[str, Sequence[float]]
    rescale_s: Sequence[float]  # how long trainers stood still as nodes came or went
    trainers: Sequence[Mapping[str, object]]  # what became of each


def summary_of(
    nodes: int,
    begin_s: float,
    streams: Mapping[str, Sequence[Submitted]],
    history: Path,
    trainers: Mapping[str, tuple[int, Path]],
) -> Summary:
    """Return the summary.

    ``streams`` are those without and with trainers; the second one began at ``begin_s``.
    ``trainers`` has, by name, their arrays and the folders with their output; ``history`` is the
    controller's.
    """
    jobs = streams["with"]
    end_s = max(one.end_s or 0.0 for one in jobs)
    busy_s = sum(one.job.nodes * ((one.end_s or 0.0) - (one.start_s or 0.0)) for one in jobs)
    rows, trainers_s = list[Mapping[str, object]](), 0.0
    with open_history(history) as database:
        query = "SELECT seconds FROM pauses WHERE grew IS NOT NULL ORDER BY time_s"
        pauses = [round(seconds, 3) for (seconds,) in database.execute(query)]
        for name, (array, folder) in trainers.items():
            had = allocations_of(database, array)
            how = Counter(one.how for one in had)
            for one in had:
                until_s = min(one.end_s or end_s, end_s)
                trainers_s += max(0.0, until_s - max(one.start_s, begin_s))
            said = "".join(path.read_text(errors="replace") for path in folder.glob("slurm-*.out"))
            course = [(int(seen), float(right)) for seen, right in _SAID.findall(said)]
            samples, accuracy = max(course, default=(0, None))  # the last that its script printed
            did = {"grew": len(had), "shrank": how["shrank"], "reclaimed": how["reclaimed"]}
            about = {"trainer": f"{name} ({array})", "samples": samples}
            rows.append(about | did | {"test accuracy": accuracy})
    idle_s = nodes * (end_s - begin_s) - busy_s
    delays_s = {name: [round(one.delay_s, 3) for one in jobs] for name, jobs in streams.items()}
    return Summary(nodes, end_s - begin_s, idle_s, trainers_s, delays_s, pauses, rows)


def render(summary: Summary, stream: Sequence[Submitted]) -> str:
    """Return the summary as text."""
    delays_s = list(zip(*summary.ordinary_start_delay_s.values(), strict=True))
    differences_s = [after - before for before, after in delays_s]
    jobs = [("start delay of the ordinary jobs, s", "without trainers", "with", "difference")]
    for one, (before, after) in zip(stream, delays_s, strict=True):
        what = f"at {one.job.at_s:3.0f} s: {one.job.nodes} nodes for {one.job.runs_s:.0f} s"
        jobs.append((what, f"{before:.2f}", f"{after:.2f}", f"{after - before:+.2f}"))
    pauses = "trainers never stood still for a change of their nodes"
    if times_s := summary.rescale_s:
        pauses = f"trainers stood still at {len(times_s)} changes of their nodes, "
        pauses += f"for {median(times_s):.2f} s in the median, {max(times_s):.2f} s at most"
    share = summary.trainers_s / summary.idle_s
    trainers = [[*summary.trainers[0]]]
    for row in summary.trainers:
        trainers.append([f"{one:,}" if isinstance(one, int) else str(one) for one in row.values()])
    return f"""
{summary.nodes} nodes, {summary.seconds:.0f} s
  idle node-seconds          {summary.idle_s:8.1f}
  of these used by trainers  {summary.trainers_s:8.1f}  ({share:.0%})

{table(jobs)}
difference: median {median(differences_s):+.2f}, max {max(differences_s):+.2f}

{pauses}

{table(trainers)}"""
