"""Sets when slurmctld looks for jobs to start, so that its looks come alike on both sides.

``slurmlog`` reads its log; ``course`` submits the jobs.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.impact_bench.slurmlog import BACKFILL, MAIN, read_looks
from scripts.labcluster.lab import ADMIN, Lab
from scripts.labcluster.processes import send
from scripts.labcluster.waiting import wait_until

# Between two looks slurmctld sleeps ten times 0.1 s and a bit (Slurm's _slurmctld_background).
_NAPS = 10
_NAP_S = 0.1002
_INTO_SECOND_S = 0.3  # Slurm counts in whole seconds: both sides' looks must be in the same ones
_LATE_S = 0.1  # after a pass was due
_AHEAD_S = 6.0  # the main scheduler's looks are read so long before a pass is due
_REASON_EVERY_S = 10.0
_PATIENCE_S = 10.0


def next_pass_s(lab: Lab, interval_s: float, sleep: Callable[[float], object]) -> float:
    """Have backfill look, and return when its next pass is due, in Unix seconds.

    Raises:
        TimeoutError: slurmctld does not look though it was given a reason to.
    """
    due_s = _a_look(lab, BACKFILL, interval_s, sleep) + interval_s
    _give_reason(lab)  # a pass with nothing new to look at comes at another time
    return due_s


def set_looks(
    lab: Lab, due_s: float, begin_s: float, interval_s: float, sleep: Callable[[float], object]
) -> float:
    """Set slurmctld's looks; return when it did, in Unix seconds: backfill looked at that moment.

    The main scheduler looks once a second, backfill every ``interval_s``. Both drift independently,
    so in another run the same job would meet them earlier or later. A process that was stopped does
    what it missed when it goes on: so from ``begin_s`` on backfill looks each ``interval_s``, and
    the main scheduler just after it. Backfill's next pass, which was given a reason, is due at
    ``due_s``.

    Raises:
        TimeoutError: slurmctld does not look though it was given a reason to.
    """
    ahead_s = last_due(due_s, begin_s, interval_s) - _AHEAD_S
    while time.time() < ahead_s:
        _give_reason(lab)
        sleep(min(_REASON_EVERY_S, max(0.0, ahead_s - time.time())))
    look_s = _a_look(lab, MAIN, 0.0, sleep)
    # Stop it in the middle of its last sleep before a look; the stop covers the rest of that sleep.
    sleep(max(0.0, stop_after(look_s, time.time()) - time.time()))
    slurmctld = lab.cluster.daemons["slurmctld"]
    send(slurmctld, signal.SIGSTOP)
    try:
        sleep(begin_s - time.time())
    finally:
        send(slurmctld, signal.SIGCONT)
    return time.time()


def common_begin(dues_s: Sequence[float], interval_s: float, now_s: float) -> float:
    """Return when all sides can begin at once: just after a pass is due on the last of them.

    The other slurmctlds are stopped for longer, which does no harm on an idle cluster.
    """
    begin_s = dues_s[-1]
    soonest_s = now_s + _AHEAD_S + 1
    while min(last_due(due_s, begin_s, interval_s) for due_s in dues_s) < soonest_s:
        begin_s += interval_s
    return math.ceil(begin_s + _LATE_S - _INTO_SECOND_S) + _INTO_SECOND_S


def last_due(due_s: float, until_s: float, interval_s: float) -> float:
    """Return when the last pass before ``until_s`` is due, if one is due each ``interval_s``."""
    return due_s + interval_s * math.floor((until_s - due_s) / interval_s + 1e-6)


def stop_after(look_s: float, now_s: float) -> float:
    """Return the next moment in the middle of the last sleep before a look."""
    first_s = look_s + (_NAPS - 0.5) * _NAP_S
    period_s = _NAPS * _NAP_S
    return first_s + max(0, math.ceil((now_s - first_s) / period_s)) * period_s


def slurmctld_log(lab: Lab) -> Path:
    """Return the log from which the looks are read."""
    return lab.dir / "log" / "slurmctld.log"


def _a_look(lab: Lab, scheduler: str, interval_s: float, sleep: Callable[[float], object]) -> float:
    """Make slurmctld look, and return when it did."""
    log = slurmctld_log(lab)
    read = log.stat().st_size
    _give_reason(lab)

    def looks_s() -> list[float]:
        with log.open(errors="replace") as lines:
            lines.seek(read)
            return read_looks(lines, scheduler)

    patience_s = _PATIENCE_S + interval_s
    wait_until(looks_s, patience_s, f"slurmctld's log has no '{scheduler}'", sleep)
    return looks_s()[0]


def _give_reason(lab: Lab) -> None:
    """Update a partition without a real change: slurmctld looks after each such update."""
    lab.run("scontrol", "update", "PartitionName=main", "State=UP", user=ADMIN)
