"""The run: the same stream on two clusters side by side, without and with trainers."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TypeVar

from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.breakdown import BACKFILL, Log, read_log, read_looks
from scripts.impact_bench.course import Start, StoppedError, run_chunk
from scripts.impact_bench.looks import NAPS, common_pass, pass_due, set_looks
from scripts.impact_bench.trainers import Kind, Work, training
from scripts.labcluster.lab import Tell
from scripts.labcluster.processes import Daemon, daemon_of, send
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

_CONF = (
    "MinJobAge=14400",  # slurmctld remembers what became of each job
    "SlurmctldDebug=debug2",  # what the breakdown is read from
    "SlurmdDebug=debug2",
)
KILL_WAIT_S = 30
_LEFT_S = 5.0  # what is still there so long after the last element is left behind

T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """How often Slurm's schedulers look, and what differs from the controller's defaults."""

    bf_interval_s: int
    batch_sched_delay_s: int
    controller: Mapping[str, object]

    @property
    def conf(self) -> tuple[str, ...]:
        """Its lines of slurm.conf."""
        delay = f"batch_sched_delay={self.batch_sched_delay_s}"
        return (f"SchedulerParameters=bf_interval={self.bf_interval_s},{delay}",)


SITE = Pace(30, 3, {})  # Slurm's own defaults
# Jobs' times are a hundredth of real ones, and so are the schedulers' and the controller's.
QUICK = Pace(1, 0, {"forward_time_s": 30, "queue_interval_s": 2})


@dataclass
class Side:
    """All that was measured without trainers, or with them; a list per chunk."""

    name: str
    chunks: list[list[Start]] = field(default_factory=list)
    begins_s: list[float] = field(default_factory=list)  # passes of backfill, Unix seconds
    passes_s: list[float] = field(default_factory=list)  # of backfill, of the whole run
    log: Log = field(default_factory=dict)  # slurmctld's
    left_behind: int = 0  # processes of trainers that outlived them
    work: list[Work] = field(default_factory=list)  # what the trainers did meanwhile


@dataclass
class Measured:
    """Both sides, which had the same stream, and the daemons' logs."""

    off: Side
    on: Side
    nodes: int
    logs: Path


def measure(
    stream: Sequence[Sequence[OrdinaryJob]],
    nodes: int,
    kind: Kind | None,
    pace: Pace,
    logs: Path,
    tell: Tell,
) -> Iterator[Measured]:
    """Run it on private clusters; yields after each chunk what there is so far.

    Without a ``kind`` of trainers both sides are without them: what this cannot tell apart.

    Raises:
        cluster.LabError: a cluster does not start, or a command fails in it.
        TimeoutError: it does not come to rest, slurmctld does not look for jobs to start, or the
            trainers do not run.
    """
    measured = Measured(Side("without"), Side("with"), nodes, logs)
    sides = (measured.off, measured.on)
    with ExitStack() as stack:
        conf = (*_CONF, *pace.conf)
        sites = [
            stack.enter_context(prepared_site(nodes, conf=conf, kill_wait=KILL_WAIT_S, tell=tell))
            for _ in sides
        ]
        try:
            for number, chunk in enumerate(stream):
                for site in sites:
                    site.lab.wait_until_idle()
                name = f"chunk-{number}-trainers"
                with (
                    nullcontext()
                    if kind is None
                    else training(sites[1], nodes, kind, pace.controller, name)
                ) as work:
                    tell(f"chunk {number + 1} of {len(stream)} begins")
                    _run_chunks(sites, sides, chunk, pace)
                if work is not None:
                    measured.on.work.append(work)
                    measured.on.left_behind += _end_left_behind(sites[1])
                for site, side in zip(sites, sides, strict=True):
                    _read_log(site, side)
                yield measured
        finally:
            for site, side in zip(sites, sides, strict=True):
                _end_left_behind(site)
                _keep_logs(site, logs / side.name)


def _run_chunks(
    sites: Sequence[Site], sides: Sequence[Side], chunk: Sequence[OrdinaryJob], pace: Pace
) -> None:
    """Run the same chunk on both sides, each from a pass of its own backfill on."""
    stop, interval_s = Event(), pace.bf_interval_s

    def sleep(time_s: float) -> None:
        if stop.wait(time_s):
            raise StoppedError

    def run(site: Site, side: Side, due_s: float) -> None:
        naps = len(side.chunks) % NAPS  # both sides have the same
        folder = site.folder(name=f"chunk-{len(side.chunks)}-jobs")
        begin_s = set_looks(site.lab, naps, due_s, pass_s, interval_s, sleep)
        side.begins_s.append(begin_s)
        side.chunks.append(run_chunk(site.lab, chunk, folder, begin_s, stop.is_set))

    with ThreadPoolExecutor() as threads:
        try:
            asked = [threads.submit(pass_due, site.lab, interval_s, sleep) for site in sites]
            dues_s = _results(asked)
            pass_s = common_pass(dues_s, interval_s, time.time())
            _results([threads.submit(run, *one) for one in zip(sites, sides, dues_s, strict=True)])
        finally:
            stop.set()


def _results(futures: Sequence[Future[T]]) -> list[T]:
    """Return what all of them return; the first failure is raised at once."""
    ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for one in ended:
        one.result()
    return [one.result() for one in futures]


def _read_log(site: Site, side: Side) -> None:
    with (site.lab.dir / "log" / "slurmctld.log").open(errors="replace") as lines:
        read = list(lines)
    side.log, side.passes_s = read_log(read), read_looks(read, BACKFILL)


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
