"""Sets when slurmctld looks for jobs to start, so that both sides meet its looks alike.

What its log says is read in ``breakdown``; jobs are submitted in ``course``.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence

from scripts.impact_bench.breakdown import BACKFILL, MAIN, read_looks
from scripts.labcluster.lab import ADMIN, Lab
from scripts.labcluster.processes import Daemon, send
from scripts.labcluster.waiting import wait_until

# Between two looks slurmctld naps ten times 0.1 s, and a bit (Slurm's _slurmctld_background).
NAPS = 10
_NAP_S = 0.1002
_STOP_S = 1.1  # as long as backfill's shortest sleep, and a bit
_LATE_S = 0.1  # after a pass was due
_AHEAD_S = 6.0  # before a pass is due the main scheduler's looks are looked at
_PATIENCE_S = 10.0


def pass_due(lab: Lab, interval_s: float, sleep: Callable[[float], object]) -> float:
    """Have backfill make a pass; return when the next one is due, in Unix seconds.

    Raises:
        TimeoutError: it makes none though it was given a reason to.
    """
    return _a_look(lab, BACKFILL, interval_s, sleep) + interval_s


def common_pass(dues_s: Sequence[float], interval_s: float, now_s: float) -> float:
    """Return when all clusters can make a pass at the same moment, held up as briefly as can be.

    Backfill plans in whole minutes of the clock (``bf_resolution``): the same jobs can have another
    order where passes are at other seconds of the minute.
    """
    late_s = min(dues_s, key=lambda due_s: max((due_s - other) % interval_s for other in dues_s))
    earliest_s = now_s + _AHEAD_S + interval_s
    return late_s + max(0, math.ceil((earliest_s - late_s) / interval_s)) * interval_s


def set_looks(
    lab: Lab,
    naps: int,
    due_s: float,
    pass_s: float,
    interval_s: float,
    sleep: Callable[[float], object],
) -> float:
    """Have backfill look at ``pass_s``; return when it did (Unix seconds).

    The main scheduler looks once a second, backfill every ``interval_s``, next at ``due_s``; both
    drift, and have nothing to do with each other: the same job would meet them earlier or later in
    another run, and so would all jobs of a chunk. A process that was stopped does what it missed
    when it goes on: from then on backfill looks each ``interval_s``, and the main scheduler
    ``naps`` naps, 0 to 9, after that.

    Raises:
        TimeoutError: slurmctld does not look though it was given a reason to.
    """
    missed_s = pass_s - (pass_s - due_s) % interval_s
    sleep(max(0.0, missed_s - _AHEAD_S - time.time()))
    look_s = _a_look(lab, MAIN, 0.0, sleep)
    # In the middle of the nap that is followed by as many; the stop takes the rest of that one.
    sleep(max(0.0, stop_after(look_s, naps, time.time()) - time.time()))
    slurmctld = lab.cluster.daemons["slurmctld"]
    return _stopped(slurmctld, max(time.time() + _STOP_S, pass_s + _LATE_S), sleep)


def stop_after(look_s: float, naps: int, now_s: float) -> float:
    """Return the next moment in the middle of a nap that is followed by ``naps`` others."""
    first_s = look_s + (NAPS - 0.5 - naps) * _NAP_S
    period_s = NAPS * _NAP_S
    return first_s + max(0, math.ceil((now_s - first_s) / period_s)) * period_s


def _stopped(slurmctld: Daemon, until_s: float, sleep: Callable[[float], object]) -> float:
    send(slurmctld, signal.SIGSTOP)
    try:
        sleep(until_s - time.time())
    finally:
        send(slurmctld, signal.SIGCONT)
    return time.time()


def _a_look(lab: Lab, scheduler: str, interval_s: float, sleep: Callable[[float], object]) -> float:
    """Have slurmctld look, and return when it did."""
    log = lab.dir / "log" / "slurmctld.log"
    read = log.stat().st_size
    # Changes nothing, but slurmctld looks after each change of a partition.
    lab.run("scontrol", "update", "PartitionName=main", "State=UP", user=ADMIN)

    def looks_s() -> list[float]:
        with log.open(errors="replace") as lines:
            lines.seek(read)
            return read_looks(lines, scheduler)

    patience_s = _PATIENCE_S + interval_s
    wait_until(looks_s, patience_s, f"slurmctld's log has no '{scheduler}'", sleep)
    return looks_s()[0]
