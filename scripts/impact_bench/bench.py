"""The run: each chunk of the stream without and with trainers, in turns, from an idle cluster."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.demonstration.cluster import Cluster, started_cluster
from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.course import Start, run_chunk, wait_until_idle
from scripts.impact_bench.looks import NAPS, set_looks
from scripts.impact_bench.trainers import Kind, Work, training, user_folder

_REPO = Path(__file__).resolve().parent.parent.parent
_CONF = (
    "MinJobAge=14400",  # slurmctld remembers what became of each job
    "SlurmctldDebug=debug2",  # what the breakdown is read from
    "SlurmdDebug=debug2",
    # A job that is backfilled onto a trainer's node starts one pass after the one that took it; the
    # usual 30 s are a hundredth here, as the jobs' times are.
    "SchedulerParameters=bf_interval=1,batch_sched_delay=0",
)
_LEFT_S = 5.0  # what is still there so long after the last element is left behind

Tell = Callable[[str], None]


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
        NotIdleError: the cluster does not come to rest.
        NoLookError: slurmctld does not look for jobs to start.
        NoTrainingError: the trainers do not train.
    """
    measured = Measured(Side("without"), Side("with"), logs)
    # Guards end processes by user and job id: clusters side by side must not share ids.
    conf = (*_CONF, f"FirstJobId={1 + random.randrange(600) * 100_000}")
    with _folder() as folder:
        tell(f"starting Slurm in {folder}")
        with started_cluster(_REPO, folder / "lab", nodes, conf) as cluster:
            try:
                for number, chunk in enumerate(stream):
                    sides = (measured.off, measured.on)
                    # In turns, so that a machine that becomes slower does so for both.
                    for side in sides if number % 2 == 0 else reversed(sides):
                        trainers = kind if side is measured.on else None
                        _run_side(cluster, side, chunk, nodes, trainers)
                        tell(f"chunk {number + 1} of {len(stream)}, {side.name} trainers")
                    yield measured
            finally:
                _end_left_behind(cluster)
                _keep_logs(cluster, logs)


def _run_side(
    cluster: Cluster,
    side: Side,
    chunk: Sequence[OrdinaryJob],
    nodes: int,
    trainers: Kind | None,
) -> None:
    name = f"{side.name}-{len(side.chunks)}"
    folder = user_folder(cluster, name)
    naps = len(side.chunks) % NAPS  # both sides have the same
    wait_until_idle(cluster)
    with nullcontext() if trainers is None else training(cluster, nodes, trainers, name) as work:
        side.chunks.append(run_chunk(cluster, chunk, folder, set_looks(cluster, naps)))
    if work is None:
        return
    side.work.append(work)
    wait_until_idle(cluster)
    side.left_behind += _end_left_behind(cluster)


def _end_left_behind(cluster: Cluster) -> int:
    """End what jobs have left; return how many processes that were.

    They are known by their working folder, the one thing of theirs that survives ``env -i``.
    """
    deadline_s = time.monotonic() + _LEFT_S
    while (left := _processes_in(cluster.folder / "jobs")) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _processes_in(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(folder):
                    found.append(int(process.name))
    return found


def _keep_logs(cluster: Cluster, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in (*(cluster.folder / "log").glob("*.log"), cluster.folder / "controller.log"):
        if log.exists():
            shutil.copy(log, logs)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-impact-", dir="/var/tmp"))
    folder.chmod(0o755)  # users work in it
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
