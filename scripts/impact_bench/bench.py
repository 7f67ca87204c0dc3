"""The run: the same stream on two clusters side by side, without and with trainers."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.course import run_jobs
from scripts.impact_bench.figures import Measured, Side
from scripts.impact_bench.looks import common_begin, next_pass_s, set_looks, slurmctld_log
from scripts.impact_bench.slurmlog import BACKFILL, MAIN, read_log, read_looks
from scripts.impact_bench.trainers import training
from scripts.labcluster.lab import Tell
from scripts.labcluster.processes import send_all
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

_CONF = (
    # With one, as at most sites, each job's end makes the main scheduler look. Without one, that
    # depends on a race of slurmd and slurmstepd, which makes seconds of random difference.
    "Epilog=/bin/true",
    "SlurmdTimeout=300",  # Slurm's default
    "MinJobAge=14400",  # slurmctld remembers the end of each job
    "SlurmctldDebug=debug2",  # passes and preemptions are read from it
    "SlurmdDebug=debug2",  # to find out what a delay is made of
)
KILL_WAIT_S = 30
_LEFT_S = 5.0  # a process that is there for longer after the last element was left behind


@dataclass(frozen=True)
class Pace:
    """How often Slurm's schedulers look, and settings other than the controller's defaults."""

    bf_interval_s: int
    batch_sched_delay_s: int
    controller: Mapping[str, object]

    @property
    def conf(self) -> tuple[str, ...]:
        """The lines of slurm.conf for it."""
        delay = f"batch_sched_delay={self.batch_sched_delay_s}"
        return (f"SchedulerParameters=bf_interval={self.bf_interval_s},{delay}",)


SITE = Pace(30, 3, {})  # Slurm's own defaults
# The stream runs QUICKER times as fast, and so do the schedulers.
QUICKER = 30.0
QUICK = Pace(1, 0, {"forward_time_s": 30, "queue_interval_s": 2})


def measure(
    stream: Sequence[OrdinaryJob],
    nodes: int,
    kind: str,
    pace: Pace,
    logs: Path,
    tell: Tell,
    gpus: int,
    parts: Sequence[int],
) -> Measured:
    """Run the stream on private clusters, with ``gpus`` a node; ``kind``, ``parts``: ``training``.

    Raises:
        cluster.LabError: a cluster does not start, or a command fails in it.
        TimeoutError: a cluster does not become idle, slurmctld does not look for jobs to start, or
            the trainers do not run.
    """
    measured = Measured(Side("without"), Side("with"), nodes, max(1, gpus))
    sides = (measured.off, measured.on)
    with ExitStack() as stack:
        conf = (*_CONF, *pace.conf)
        options = {"kill_wait": KILL_WAIT_S, "gpus": gpus, "share": bool(parts)}
        sites = [
            stack.enter_context(
                prepared_site(nodes, conf=conf, tell=tell, announce=side is measured.on, **options)
            )
            for side in sides
        ]
        for site, side in zip(sites, sides, strict=True):
            stack.callback(_keep_logs, site, logs / side.name)
            stack.callback(_end_left_behind, site)
        with training(sites[1], nodes, kind, pace.controller, parts) as measured.on.work:
            tell("the stream begins")
            _run_both(sites, sides, stream, pace)
        measured.on.left_behind = _end_left_behind(sites[1])
        for site, side in zip(sites, sides, strict=True):
            lines = slurmctld_log(site.lab).read_text(errors="replace").splitlines()
            side.log, side.passes_s = read_log(lines), read_looks(lines, BACKFILL)
            side.looks_s = read_looks(lines, MAIN)
    return measured


def _run_both(
    sites: Sequence[Site], sides: Sequence[Side], stream: Sequence[OrdinaryJob], pace: Pace
) -> None:
    """Run the same stream on both sides, which begin at the same moment with a pass of backfill."""
    stop, interval_s = Event(), pace.bf_interval_s

    def sleep(time_s: float) -> None:
        if stop.wait(time_s):
            raise CancelledError  # the other side has failed, or somebody has stopped the bench

    def run(site: Site, side: Side, due_s: float, begin_s: float) -> None:
        side.begin_s = set_looks(site.lab, due_s, begin_s, interval_s, sleep)
        folder = site.folder(name="jobs")
        side.starts = run_jobs(site.lab, stream, folder, side.begin_s, sleep)

    with ThreadPoolExecutor() as threads:
        try:
            asked = [threads.submit(next_pass_s, site.lab, interval_s, sleep) for site in sites]
            dues_s = [one.result() for one in asked]
            begin_s = common_begin(dues_s, interval_s, time.time())
            runs = [
                threads.submit(run, site, side, due_s, begin_s)
                for site, side, due_s in zip(sites, sides, dues_s, strict=True)
            ]
            for ended in as_completed(runs):
                ended.result()
        finally:
            stop.set()


def _end_left_behind(site: Site) -> int:
    """End the processes that jobs have left; return how many there were.

    They are found by their working folder, the only thing that survives ``env -i``.
    """
    folder = site.lab.home("alice")
    with suppress(TimeoutError):
        wait_until(lambda: not _processes_in(folder), _LEFT_S)
    left = _processes_in(folder)
    send_all(left, signal.SIGKILL)
    return len(left)


def _processes_in(folder: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if path.readlink().is_relative_to(folder):
                found.append(int(path.parent.name))
    return found


def _keep_logs(site: Site, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in (*(site.lab.dir / "log").glob("*.log"), site.controller.log):
        if log.exists():
            shutil.copy(log, logs)
