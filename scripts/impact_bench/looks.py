"""Sets when slurmctld looks for jobs to start, so that both sides meet its looks alike.

What its log says is read in ``breakdown``; jobs are submitted in ``course``.
"""

from __future__ import annotations

import math
import signal
import time

from scripts.impact_bench.breakdown import read_looks
from scripts.labcluster.lab import ADMIN, Lab
from scripts.labcluster.processes import Daemon, send
from scripts.labcluster.waiting import wait_until

# Between two looks slurmctld naps ten times 0.1 s, and a bit (Slurm's _slurmctld_background).
NAPS = 10
_NAP_S = 0.1002
# As long as backfill's own second, and a bit.
_STOP_S = 1.1
_SETTLED_S = 1.0
_PATIENCE_S = 10.0


def set_looks(lab: Lab, naps: int) -> float:
    """Set slurmctld's looks, on an idle cluster; return when to begin, in Unix seconds.

    Both of its looks come once a second, drift, and have nothing to do with each other: the same
    job would meet them up to a second later in another run, and so would all jobs of a chunk. A
    process that was stopped does what it missed when it goes on: from then on backfill looks at the
    moments of ``begin``, and the main scheduler ``naps`` naps, 0 to 9, after that.

    Raises:
        TimeoutError: slurmctld does not look though it was given a reason to.
    """
    look_s = _a_look(lab)
    # In the middle of the nap that is followed by as many; the stop takes the rest of that one.
    stop_s = stop_after(look_s, naps, time.time())
    time.sleep(max(0.0, stop_s - time.time()))
    return _stopped(lab.cluster.daemons["slurmctld"]) + _SETTLED_S


def stop_after(look_s: float, naps: int, now_s: float) -> float:
    """Return the next moment in the middle of a nap that is followed by ``naps`` others."""
    first_s = look_s + (NAPS - 0.5 - naps) * _NAP_S
    period_s = NAPS * _NAP_S
    return first_s + max(0, math.ceil((now_s - first_s) / period_s)) * period_s


def _stopped(slurmctld: Daemon) -> float:
    send(slurmctld, signal.SIGSTOP)
    try:
        time.sleep(_STOP_S)
    finally:
        send(slurmctld, signal.SIGCONT)
    return time.time()


def _a_look(lab: Lab) -> float:
    """Have slurmctld look, and return when it did."""
    log = lab.dir / "log" / "slurmctld.log"
    read = log.stat().st_size
    # Changes nothing, but slurmctld looks after each change of a partition.
    lab.run("scontrol", "update", "PartitionName=main", "State=UP", user=ADMIN)

    def looks_s() -> list[float]:
        with log.open(errors="replace") as lines:
            lines.seek(read)
            return read_looks(lines)

    wait_until(looks_s, _PATIENCE_S, "slurmctld's log has no look")
    return looks_s()[0]
