"""``make bench-slurmctld``: what a controller and its trainers cost slurmctld, as sdiag says.

On a cluster with many configured nodes and waiting jobs, of which only a few nodes are there.
"""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from scripts.benchkit.command import Findings, bench_command, progress
from scripts.benchkit.text import table
from scripts.demonstration.cluster import Cluster, started_cluster
from scripts.demonstration.folder import cluster_folder

_REPO = Path(__file__).resolve().parent.parent
REAL_NODES = 8
_TRAINER = "#!/bin/bash\n#SBATCH --bftrainer -N 1-4 -o /dev/null\nsrun sleep 100000\n"
_ORDINARY = "#!/bin/bash\n#SBATCH -N 100 -o /dev/null --array=0-99\ntrue\n"  # they wait


@dataclass(frozen=True)
class Load:
    """slurmctld's statistics of some time. Cycles in milliseconds, in the mean."""

    minutes: float
    rpcs: int  # of the account that the controller runs as
    rpc_ms: float  # what they took slurmctld, in all
    main_cycle_ms: float
    backfill_cycle_ms: float


@dataclass(frozen=True)
class Requests:
    """What an account has asked of slurmctld since its statistics began."""

    count: int
    ms: float  # what they took slurmctld, in all


def down_nodes(count: int) -> str:
    """Return the line of slurm.conf for so many nodes that are configured and not there."""
    where = f"NodeHostname=none[1-{count}] NodeAddr=127.0.0.1 Port=9"  # where nobody listens
    return f"NodeName=x[1-{count}] {where} State=DOWN"


def requests_of(account: str, sdiag: str) -> Requests:
    """Read what sdiag says of an account; nothing where it has asked nothing."""
    by_user = sdiag.partition("statistics by user")[2]
    line = rf"^\s*{re.escape(account)}\s.*count:(\d+)\s.*total_time:(\d+)"
    found = re.search(line, by_user, re.MULTILINE)
    return Requests(int(found[1]), int(found[2]) / 1e3) if found else Requests(0, 0.0)


@bench_command(TimeoutError)
@click.option("--nodes", type=click.IntRange(1, 20_000), default=5000)
@click.option("--jobs", type=click.IntRange(100, 20_000), default=2000)
@click.option("--minutes", type=click.FloatRange(0.1, 60), default=5.0)
def main(nodes: int, jobs: int, minutes: float) -> Findings:
    """Measure what the controller costs slurmctld, on a private cluster of many nodes.

    First without a controller, then with one whose trainers have all nodes, at rest.

    \b
    Example:
      scripts/bench-slurmctld --nodes 1000 --jobs 500 --minutes 1
    """
    with cluster_folder("bftrainer-load-") as folder:
        loads = measure(_REPO, folder / "lab", nodes, jobs, minutes, progress())
    return Findings(rendered(loads), loads)


def measure(
    repo: Path,
    folder: Path,
    nodes: int,
    jobs: int,
    minutes: float,
    tell: Callable[[str], None],
) -> dict[str, Load]:
    """Return the load without a controller, and with one whose trainers have all nodes, at rest.

    Raises:
        subprocess.CalledProcessError: the cluster does not start, or a command fails in it.
        TimeoutError: the trainers do not get all nodes.
    """
    conf = [down_nodes(nodes), f"MaxJobCount={10 * jobs + 10_000}"]
    with started_cluster(repo, folder, REAL_NODES, conf) as cluster:
        tell(f"{nodes} nodes are configured, {REAL_NODES} more are there; submitting {jobs} jobs")
        for _ in range(jobs // 100):
            cluster.run("sbatch", input=_ORDINARY)
        tell(f"without a controller, {minutes:g} min")
        without = _observe(cluster, minutes)
        with cluster.controller({}):
            for _ in range(REAL_NODES // 4):
                cluster.run("sbatch", input=_TRAINER)
            _wait_until_used(cluster)
            tell(f"with a controller and {REAL_NODES // 4} trainers, {minutes:g} min")
            return {"without": without, "with": _observe(cluster, minutes)}


def rendered(loads: dict[str, Load]) -> str:
    """Return the measured loads side by side."""
    rows = {
        "RPCs of the controller's account, a minute": [
            one.rpcs / one.minutes for one in loads.values()
        ],
        "slurmctld's time for them, ms a minute": [
            one.rpc_ms / one.minutes for one in loads.values()
        ],
        "main scheduling cycle, ms": [one.main_cycle_ms for one in loads.values()],
        "backfill cycle, ms": [one.backfill_cycle_ms for one in loads.values()],
    }
    cells = ((name, *(f"{value:.1f}" for value in values)) for name, values in rows.items())
    return table([("", *loads), *cells])


def _observe(cluster: Cluster, minutes: float) -> Load:
    account = cluster.slurm_user or getpass.getuser()
    cluster.run("sdiag", "--reset", **_as_admin(cluster))
    time.sleep(60 * minutes)
    text = cluster.run("sdiag").stdout
    own = requests_of(account, text)
    main, _, backfill = text.partition("Backfilling stats")
    return Load(minutes, own.count, own.ms, _mean_cycle_ms(main), _mean_cycle_ms(backfill))


def _mean_cycle_ms(text: str) -> float:
    mean = re.search(r"Mean cycle:\s+(\d+)", text)
    return int(mean[1]) / 1e3 if mean else 0.0


def _as_admin(cluster: Cluster) -> dict[str, Any]:
    return {"user": "root", "group": "root"} if cluster.user is not None else {}


def _wait_until_used(cluster: Cluster, timeout_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while cluster.status().get("pool", {}).get("used", 0) < REAL_NODES:
        if time.monotonic() > deadline_s:
            raise TimeoutError("the trainers do not get all nodes")
        time.sleep(1)
    time.sleep(10)  # what follows from the joins
