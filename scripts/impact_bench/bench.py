"""The run: the same stream on two clusters side by side, without and with trainers."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event
from typing import TypeAlias

from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.course import Start, StoppedError, run_jobs
from scripts.impact_bench.looks import common_begin, set_looks
from scripts.impact_bench.slurmlog import BACKFILL, Log, read_log, read_looks
from scripts.impact_bench.trainers import Work, training
from scripts.labcluster.lab import Tell
from scripts.labcluster.processes import Daemon, daemon_of, send
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

_CONF = (
    # With one, as at most sites, each job's end makes the main scheduler look. Without, it does so
    # or not, as slurmd and slurmstepd happen to race: seconds of difference that nobody has made.
    "Epilog=/bin/true",
    "SlurmdTimeout=300",  # Slurm's default
    "MinJobAge=14400",  # slurmctld remembers what became of each job
    "SlurmctldDebug=debug2",  # what passes and preemptions are read from
    "SlurmdDebug=debug2",  # for whoever asks what a delay is made of
)
KILL_WAIT_S = 30
_REORDERED_S = 7.0  # neither before each pass nor never
_LEFT_S = 5.0  # what is still there so long after the last element is left behind


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


Pair: TypeAlias = tuple[Start, Start]
SITE = Pace(30, 3, {})  # Slurm's own defaults
# The stream is QUICKER times as fast, and so are the schedulers.
QUICKER = 30.0
QUICK = Pace(1, 0, {"forward_time_s": 30, "queue_interval_s": 2})


@dataclass
class Side:
    """All that was measured without trainers, or with them."""

    name: str
    starts: list[Start] = field(default_factory=list)  # of the jobs, in the stream's order
    begin_s: float = 0.0  # the pass of backfill that it began with, Unix seconds
    passes_s: list[float] = field(default_factory=list)  # of backfill
    log: Log = field(default_factory=dict)  # slurmctld's
    left_behind: int = 0  # processes of trainers that outlived them
    work: Work | None = None  # what the trainers did meanwhile


@dataclass
class Measured:
    """Both sides, which had the same stream."""

    off: Side
    on: Side
    nodes: int

    @property
    def pairs(self) -> list[Pair]:
        """The same job on each side, in the stream's order."""
        return list(zip(self.off.starts, self.on.starts, strict=True))


def measure(
    stream: Sequence[OrdinaryJob],
    nodes: int,
    kind: str | None,
    pace: Pace,
    logs: Path,
    tell: Tell,
    reordered: bool = False,
) -> Measured:
    """Run it on private clusters.

    Without a ``kind`` of trainers both sides are without them: what this cannot tell apart. Where
    they are ``reordered``, Slurm prefers other nodes every few seconds on one of them.

    Raises:
        cluster.LabError: a cluster does not start, or a command fails in it.
        TimeoutError: it does not come to rest, slurmctld does not look for jobs to start, or the
            trainers do not run.
    """
    measured = Measured(Side("without"), Side("with"), nodes)
    sides = (measured.off, measured.on)
    with ExitStack() as stack:
        conf = (*_CONF, *pace.conf)
        sites = [
            stack.enter_context(prepared_site(nodes, conf=conf, kill_wait=KILL_WAIT_S, tell=tell))
            for _ in sides
        ]
        if reordered:
            stack.enter_context(_reordering(sites[1], nodes))
        try:
            with (
                nullcontext() if kind is None else training(sites[1], nodes, kind, pace.controller)
            ) as measured.on.work:
                tell("the stream begins")
                _run_both(sites, sides, stream, pace)
            measured.on.left_behind = _end_left_behind(sites[1])
            for site, side in zip(sites, sides, strict=True):
                _read_log(site, side)
        finally:
            for site, side in zip(sites, sides, strict=True):
                _end_left_behind(site)
                _keep_logs(site, logs / side.name)
    return measured


@contextmanager
def _reordering(site: Site, nodes: int) -> Iterator[None]:
    """Let Slurm prefer other nodes every few seconds; which ones is drawn with the same seed."""
    draw, stop = random.Random(nodes), Event()

    def reorder() -> None:
        while not stop.wait(_REORDERED_S):
            for number, weight in enumerate(draw.sample(range(nodes), nodes), start=1):
                update = f"NodeName=n{number}", f"Weight={weight + 1}"
                site.lab.run("scontrol", "update", *update, user="root")

    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(reorder)
        try:
            yield
        finally:
            stop.set()
        run.result()


def _run_both(
    sites: Sequence[Site], sides: Sequence[Side], stream: Sequence[OrdinaryJob], pace: Pace
) -> None:
    """Run the same stream on both sides, which begin at the same moment with a pass of backfill."""
    stop, dues_s, begins_s = Event(), dict[str, float](), list[float]()

    def settle() -> None:
        order = [dues_s[side.name] for side in sides]
        begins_s.append(common_begin(order, pace.bf_interval_s, time.time()))

    both = Barrier(len(sides), settle)

    def agree(side: Side, due_s: float) -> float:
        dues_s[side.name] = due_s
        try:
            both.wait()
        except BrokenBarrierError:
            raise StoppedError from None
        return begins_s[0]

    with ThreadPoolExecutor() as threads:
        try:
            runs = [
                threads.submit(_run, site, side, stream, pace, partial(agree, side), stop)
                for site, side in zip(sites, sides, strict=True)
            ]
            ended, _ = wait(runs, return_when=FIRST_EXCEPTION)
            for run in ended:
                run.result()
        finally:
            stop.set()
            both.abort()


def _run(
    site: Site,
    side: Side,
    stream: Sequence[OrdinaryJob],
    pace: Pace,
    agree: Callable[[float], float],
    stop: Event,
) -> None:
    def sleep(time_s: float) -> None:
        if stop.wait(time_s):
            raise StoppedError

    side.begin_s = set_looks(site.lab, pace.bf_interval_s, agree, sleep)
    folder = site.folder(name="jobs")
    side.starts = run_jobs(site.lab, stream, folder, side.begin_s, stop.is_set)


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
            if path.readlink().is_relative_to(folder):
                found.append(daemon_of(int(path.parent.name)))
    return [one for one in found if one is not None]


def _keep_logs(site: Site, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in (*(site.lab.dir / "log").glob("*.log"), site.controller.log):
        if log.exists():
            shutil.copy(log, logs)
