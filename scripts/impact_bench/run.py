"""The run: the same stream on two clusters side by side, without and with trainers."""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bftrainer_slurm.slurm.nodelists import expand
from scripts.demonstration.stream import OrdinaryJob, submit_job
from scripts.impact_bench.figures import Side, Start
from scripts.impact_bench.slurmlog import read_log, times_s
from scripts.labcluster.lab import ADMIN, Lab, Tell
from scripts.labcluster.processes import send
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
_FULL_S = 120.0  # that trainers have to use all nodes
_QUEUED = ("squeue", "-h", "-p", "main", "-t", "PD,R,CF,CG", "-o", "%i")
_FORM = "JobID:20,State:20,RestartCnt:20,NodeList:1000"
_JOBS = ("squeue", "-h", "-p", "main", "-t", "all", f"--Format={_FORM}")
_END_S, _LOOK_EVERY_S = 1200.0, 5.0  # after the last submission
_ELEMENT = "#!/bin/bash\nsrun sleep infinity\n"  # no processor time: all nodes share this host
_WHOLE = (0, 0)  # two trainers, so that they share the nodes

# How often Slurm's schedulers look, and settings other than the controller's defaults.
SITE = {"slurm": {"bf_interval": 30, "batch_sched_delay": 3}, "controller": {}}  # the defaults
# The stream runs QUICKER times as fast, and so do the schedulers.
QUICKER = 30.0
QUICK = {
    "slurm": {"bf_interval": 1, "batch_sched_delay": 0},
    "controller": {"forward_time_s": 30, "queue_interval_s": 2},
}

# Between two looks slurmctld sleeps ten times 0.1 s and a bit (Slurm's _slurmctld_background).
_NAPS, _NAP_S = 10, 0.1002
_INTO_SECOND_S = 0.3  # Slurm counts in whole seconds: both sides' looks must be in the same ones
_LATE_S, _AHEAD_S = 0.1, 6.0  # from when a pass is due on, and until then
_REASON_EVERY_S = 10.0
_PATIENCE_S = 10.0


def measure(
    stream: Sequence[OrdinaryJob],
    nodes: int,
    gpus: int,
    pace: Mapping[str, Any],
    null: bool,
    logs: Path,
    tell: Tell,
) -> tuple[Side, Side]:
    """Run the stream without and with trainers, on private clusters with ``gpus`` a node.

    ``pace`` is ``SITE`` or ``QUICK``. ``null``: both have no trainers, for the bench's own error.

    Raises:
        cluster.LabError: a cluster does not start, or a command fails in it.
        TimeoutError: slurmctld does not look for jobs, or no trainer runs within two minutes.
    """
    sides, sites = (Side("without"), Side("with")), list[Site]()
    scheduler = ",".join(f"{name}={value}" for name, value in pace["slurm"].items())
    conf = (*_CONF, f"SchedulerParameters={scheduler}")
    options: dict[str, Any] = {
        "conf": conf,
        "kill_wait": KILL_WAIT_S,
        "gpus": gpus,
        "share": gpus > 0,
    }
    with ExitStack() as stack:
        for side in sides:
            options["announce"] = side is sides[1]
            sites.append(stack.enter_context(prepared_site(nodes, tell=tell, **options)))
            stack.callback(_keep_logs, sites[-1], logs / side.name)
        stack.enter_context(sites[1].controlled(pace["controller"]))
        if not null:
            sides[1].parts = _fill(sites[1], nodes, gpus)
        used = _used(sites[1])
        tell(f"the stream begins, trainers use {used} nodes or parts of them")
        _run(sites, sides, stream, pace["slurm"]["bf_interval"])
        trainers = sites[1].controller.status().get("trainers", [])
        left, lost = (sum(one[key] for one in trainers) for key in ("shrank", "reclaimed"))
        sides[1].elements = {"at the begin": used, "left for jobs": left, "were reclaimed": lost}
        for site, side in zip(sites, sides, strict=True):
            side.log = read_log(_log(site.lab).read_text(errors="replace").splitlines())
    return sides


def _run(
    sites: Sequence[Site], sides: Sequence[Side], stream: Sequence[OrdinaryJob], interval_s: int
) -> None:
    """Run the stream on both sides, and ask what became of the jobs; what has not ended failed."""
    folders = [site.folder(name="jobs") for site in sites]
    begin_s = _begin(sites[0].lab, sites[1].lab, interval_s)
    submitted = []
    with ThreadPoolExecutor() as threads:
        for number, job in enumerate(stream):
            time.sleep(max(0.0, begin_s + job.at_s - time.time()))
            asked = [
                threads.submit(submit_job, job, folder / f"job-{number}", site.run)
                for site, folder in zip(sites, folders, strict=True)
            ]
            submitted.append([one.result() for one in asked])
    for site, side, jobs in zip(sites, sides, zip(*submitted, strict=True), strict=True):
        with suppress(TimeoutError):
            over = lambda site=site: not site.run(*_QUEUED).stdout  # noqa: E731
            wait_until(over, _END_S, pause=lambda _: time.sleep(_LOOK_EVERY_S))
        said = {}
        for line in site.run(*_JOBS).stdout.splitlines():
            known, state, restarts, *had = line.split()
            said[int(known)] = (state, int(restarts), expand(had[0]) if had else ())
        side.begin_s = begin_s
        side.starts = [
            Start(*(one.job, one.number, one.submit_s, one.start_s, one.end_s), *said[one.number])
            for one in jobs
        ]


def _begin(off: Lab, on: Lab, interval_s: int) -> float:
    """Let slurmctld look at the same moments on both sides; return the first, in Unix seconds.

    The main scheduler looks once a second, backfill every ``interval_s``. Both drift independently,
    so in another run the same job would meet them earlier or later. A process that was stopped does
    what it missed when it goes on: so from then on backfill looks each ``interval_s``, and the main
    scheduler just after it. The side without trainers is stopped for longer, which does no harm on
    an idle cluster.
    """
    _next_look(off, "pass", interval_s)
    _stop(off)
    due_s = _next_look(on, "pass", interval_s) + interval_s
    while (left_s := due_s - _AHEAD_S - time.time()) > 0:
        _give_reason(on)  # a pass with nothing new to look at comes at another time
        time.sleep(min(_REASON_EVERY_S, left_s))
    _stop(on)
    soonest_s = max(due_s, time.time()) + _LATE_S
    begin_s = math.ceil(soonest_s - _INTO_SECOND_S) + _INTO_SECOND_S
    time.sleep(max(0.0, begin_s - time.time()))
    for lab in (off, on):
        send(lab.cluster.daemons["slurmctld"], signal.SIGCONT)
    return time.time()


def _stop(lab: Lab) -> None:
    """Stop slurmctld in the middle of its last sleep before a look; the stop covers its rest."""
    first_s, period_s = _next_look(lab, "look") + (_NAPS - 0.5) * _NAP_S, _NAPS * _NAP_S
    time.sleep((first_s - time.time()) % period_s)
    send(lab.cluster.daemons["slurmctld"], signal.SIGSTOP)


def _next_look(lab: Lab, kind: str, interval_s: float = 0.0) -> float:
    """Make slurmctld look, and return when it did."""
    read = _log(lab).stat().st_size
    _give_reason(lab)

    def found() -> list[float]:
        with _log(lab).open(errors="replace") as lines:
            lines.seek(read)
            return times_s(read_log(lines), kind)

    wait_until(found, _PATIENCE_S + interval_s, f"slurmctld's log has no {kind}")
    return found()[0]


def _give_reason(lab: Lab) -> None:
    """Update a partition without a real change: slurmctld looks after each such update."""
    lab.run("scontrol", "update", "PartitionName=main", "State=UP", user=ADMIN)


def _fill(site: Site, nodes: int, gpus: int) -> dict[str, int]:
    """Let trainers fill the cluster, or most of it; return the GPUs of an element by array.

    The controller does not use nodes on which elements end slowly.
    """
    parts, found = parts_of(gpus), dict[str, int]()
    for number, part in enumerate(parts or _WHOLE):
        folder = site.folder(name=f"trainer-{number}")
        words = [f"--output={folder}/%a.out", *[f"--gpus-per-node={part}"] * bool(part)]
        most = nodes if part else nodes // len(_WHOLE)
        found[str(site.submit(_ELEMENT, f"1-{most}", *words, cwd=folder))] = part or 1
    with suppress(TimeoutError):
        wait_until(lambda: _used(site) >= nodes * max(1, len(parts)), _FULL_S)
    if not _used(site):
        raise TimeoutError(f"no trainer runs after {_FULL_S:g} s")
    return found


def parts_of(gpus: int) -> list[int]:
    """Return the GPUs of an element of each trainer: some of them fill whatever a node has free.

    One trainer has at most one element on a node.
    """
    if gpus < 2:
        return [1] * gpus
    return [gpus // 2, *parts_of(gpus - gpus // 2)]


def _used(site: Site) -> int:
    trainers = site.controller.status().get("trainers", [])
    return sum(len(one["nodes"]) for one in trainers)


def _log(lab: Lab) -> Path:
    return lab.dir / "log" / "slurmctld.log"


def _keep_logs(site: Site, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in (*(site.lab.dir / "log").glob("*.log"), site.controller.log):
        if log.exists():
            shutil.copy(log, logs)
