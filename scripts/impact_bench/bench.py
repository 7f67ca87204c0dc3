"""The run: each chunk of the stream without and with trainers, in turns, from an idle cluster."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.course import Start, run_chunk
from scripts.impact_bench.looks import NAPS, set_looks
from scripts.impact_bench.trainers import Kind, Work, training
from scripts.labcluster.lab import Tell
from scripts.labcluster.processes import Daemon, daemon_of, send
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

_CONF = (
    "MinJobAge=14400",  # slurmctld remembers what became of each job
    "SlurmctldDebug=debug2",  # what the breakdown is read from
    "SlurmdDebug=debug2",
    # A job that is backfilled onto a trainer's node starts one pass after the one that took it; the
    # usual 30 s are a hundredth here, as the jobs' times are.
    "SchedulerParameters=bf_interval=1,batch_sched_delay=0",
)
_LEFT_S = 5.0  # what is still there so long after the last element is left behind


@dataclass
class Side:
    """All that was measured without trainers, or with them; a list per chunk."""

    name: str
    chunks: list[list[Start]] = field(default_factory=list)
    left_behind: int = 0  # processes of trainers that outlived them
    work: list[Work] = field(default_factory=list)  # what the trainers did meanwhile


@dataclass
class Measured:
    """Both sides, which had the same stream, and the daemons' logs."""

    off: Side
    on: Side
    logs: Path


def measure(
    stream: Sequence[Sequence[OrdinaryJob]],
    nodes: int,
    kind: Kind | None,
    logs: Path,
    tell: Tell,
) -> Iterator[Measured]:
    """Run it on a private cluster; yields after each chunk what there is so far.

    Without a ``kind`` of trainers both sides are without them: what this cannot tell apart.

    Raises:
        cluster.LabError: the cluster does not start, or a command fails in it.
        TimeoutError: it does not come to rest, slurmctld does not look for jobs to start, or the
            trainers do not train.
    """
    measured = Measured(Side("without"), Side("with"), logs)
    with prepared_site(nodes, conf=_CONF, kill_wait=30, tell=tell) as site:
        try:
            for number, chunk in enumerate(stream):
                sides = (measured.off, measured.on)
                # In turns, so that a machine that becomes slower does so for both.
                for side in sides if number % 2 == 0 else reversed(sides):
                    trainers = kind if side is measured.on else None
                    _run_side(site, side, chunk, nodes, trainers)
                    tell(f"chunk {number + 1} of {len(stream)}, {side.name} trainers")
                yield measured
        finally:
            _end_left_behind(site)
            _keep_logs(site, logs)


def _run_side(
    site: Site,
    side: Side,
    chunk: Sequence[OrdinaryJob],
    nodes: int,
    trainers: Kind | None,
) -> None:
    name = f"{side.name}-{len(side.chunks)}"
    folder = site.folder(name=name)
    naps = len(side.chunks) % NAPS  # both sides have the same
    site.lab.wait_until_idle()
    with nullcontext() if trainers is None else training(site, nodes, trainers, name) as work:
        side.chunks.append(run_chunk(site.lab, chunk, folder, set_looks(site.lab, naps)))
    if work is None:
        return
    side.work.append(work)
    site.lab.wait_until_idle()
    side.left_behind += _end_left_behind(site)


def _end_left_behind(site: Site) -> int:
    """End what jobs have left; return how many processes that were.

    They are known by their working folder, the one thing of theirs that survives ``env -i``.
    """
    folder = site.lab.home("alice")
    with suppress(TimeoutError):
        wait_until(lambda: not _processes_in(folder), _LEFT_S)
    left = _processes_in(folder)
    for process in left:
        send(process, signal.SIGKILL)
    return len(left)


def _processes_in(folder: Path) -> list[Daemon]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            one = daemon_of(int(path.parent.name))
            if one is not None and path.readlink().is_relative_to(folder):
                found.append(one)
    return found


def _keep_logs(site: Site, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in (*(site.lab.dir / "log").glob("*.log"), site.controller.log):
        if log.exists():
            shutil.copy(log, logs)
