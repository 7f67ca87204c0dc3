"""``make bench-slurmctld``: what a controller and its trainers cost slurmctld, as sdiag says.

The cluster has many waiting jobs and many configured nodes, but only a few nodes really run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from scripts.benchkit.command import Findings, bench_command, number, progress
from scripts.benchkit.text import table
from scripts.labcluster.cluster import LabError
from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.users import account_of
from scripts.labcluster.waiting import wait_until

REAL_NODES = 8
_TRAINER = "#!/bin/bash\n#SBATCH --bftrainer -N 1-4 -o /dev/null\nsrun sleep 100000\n"
_ORDINARY = "#!/bin/bash\n#SBATCH -N 100 -o /dev/null --array=0-99\ntrue\n"  # they wait


@dataclass(frozen=True)
class Load:
    """slurmctld's statistics over some time; cycles are mean milliseconds."""

    minutes: float
    rpcs: int  # of the account that the controller runs as
    rpc_ms: float  # slurmctld's total time for them
    main_cycle_ms: float
    backfill_cycle_ms: float


@dataclass(frozen=True)
class Requests:
    """What an account has asked of slurmctld since its statistics began."""

    count: int
    ms: float  # slurmctld's total time for them


def down_nodes(count: int) -> str:
    """Return the line of slurm.conf for nodes that are configured but do not run."""
    where = f"NodeHostname=none[1-{count}] NodeAddr=127.0.0.1 Port=9"  # where nobody listens
    return f"NodeName=x[1-{count}] {where} State=DOWN"


def requests_of(account: str, sdiag: str) -> Requests:
    """Read what sdiag says about an account; zeros if it has asked nothing."""
    by_user = sdiag.partition("statistics by user")[2]
    line = rf"^\s*{re.escape(account)}\s.*count:(\d+)\s.*total_time:(\d+)"
    found = re.search(line, by_user, re.MULTILINE)
    return Requests(int(found[1]), int(found[2]) / 1e3) if found else Requests(0, 0.0)


@bench_command(LabError, TimeoutError)
@number("--nodes", 5000, 1, 20_000)
@number("--jobs", 2000, 100, 20_000)
@number("--minutes", 5.0, 0.1, 60)
def main(nodes: int, jobs: int, minutes: float) -> Findings:
    """Measure what the controller costs slurmctld, on a private cluster of many nodes.

    First without a controller, then with one whose trainers have all nodes, at rest.

    \b
    Example:
      scripts/run bench-slurmctld --nodes 1000 --jobs 500 --minutes 1
    """
    tell = progress()
    conf = [down_nodes(nodes), f"MaxJobCount={10 * jobs + 10_000}"]
    with prepared_site(REAL_NODES, conf=conf, kill_wait=30, tell=tell) as site:
        tell(f"{nodes} nodes are configured, {REAL_NODES} more are there; submitting {jobs} jobs")
        for _ in range(jobs // 100):
            site.lab.sbatch(script=_ORDINARY)
        tell(f"without a controller, {minutes:g} min")
        loads = {"without": _observe(site, minutes)}
        with site.controlled({}):
            for _ in range(REAL_NODES // 4):
                site.lab.sbatch(script=_TRAINER)
            wait_until(
                lambda: site.controller.status().get("pool", {}).get("used", 0) == REAL_NODES,
                otherwise="the trainers do not get all nodes",
            )
            time.sleep(10)  # until the joins cause no more requests
            tell(f"with a controller and {REAL_NODES // 4} trainers, {minutes:g} min")
            loads["with"] = _observe(site, minutes)
    return Findings(rendered(loads), loads)


def rendered(loads: dict[str, Load]) -> str:
    """Return the measured loads side by side."""
    rows: dict[str, Callable[[Load], float]] = {
        "RPCs of the controller's account, a minute": lambda one: one.rpcs / one.minutes,
        "slurmctld's time for them, ms a minute": lambda one: one.rpc_ms / one.minutes,
        "main scheduling cycle, ms": lambda one: one.main_cycle_ms,
        "backfill cycle, ms": lambda one: one.backfill_cycle_ms,
    }
    cells = ((row, *(f"{of(one):.1f}" for one in loads.values())) for row, of in rows.items())
    return table([("", *loads), *cells])


def _observe(site: Site, minutes: float) -> Load:
    site.run("sdiag", "--reset", user=ADMIN)
    time.sleep(60 * minutes)
    text = site.run("sdiag").stdout
    own = requests_of(account_of(site.controller.user), text)
    main, _, backfill = text.partition("Backfilling stats")
    return Load(minutes, own.count, own.ms, _mean_cycle_ms(main), _mean_cycle_ms(backfill))


def _mean_cycle_ms(text: str) -> float:
    mean = re.search(r"Mean cycle:\s+(\d+)", text)
    return int(mean[1]) / 1e3 if mean else 0.0
