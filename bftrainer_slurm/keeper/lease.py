"""Which of several hosts works: the one that holds a lease, a file that all of them see.

The hosts' clocks are not compared. The holder writes a growing count into the lease. The others
watch, each by its own clock, whether the count still grows. Keeper and controller have a lease
each, so that each of them can be restarted alone.

A host may act until ``VALID_S`` after the beginning of the last round that found and renewed its
own name. A new host waits ``SETTLE_S``, which is longer, after it has written its name. By then
the host before it has seen the new name, or has stopped because it could read nothing.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bftrainer_slurm.keeper.home import StateError, make_private, own_text

logger = logging.getLogger(__name__)

LOST = 75  # EX_TEMPFAIL: the service manager starts this process again, to wait for its turn
ROUND_S = 2.0  # between two rounds; a round that takes longer does not count
VALID_S = 8.0
PATIENCE_S = 8.0  # a lease that nobody has renewed for so long may be taken
SETTLE_S = 11.0
_LOOK_S = 0.1


def boot_time_s() -> float:
    """Return the seconds since this host was booted, including those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease in the file ``path``, as the process called ``name`` sees it.

    No two processes with one name may run at the same time: a process that is started again renews
    the lease of the one before it, and acts after ``SETTLE_S``. ``clock`` counts seconds.
    """

    def __init__(self, path: Path, name: str, clock: Callable[[], float] = boot_time_s) -> None:
        self.path = path
        self._name = name
        self._clock = clock
        self._seen: bytes | None = None
        self._seen_s = clock()
        self._acts_s: float | None = None  # we act from then on, if still ours; None: it is not
        self._until_s = float("-inf")
        self.lost = False  # it was ours, we may have acted, and it is ours no more

    def holds(self) -> bool:
        """Return whether this process may act now. Reads the clock, and nothing else."""
        now_s = self._clock()
        return self._acted(now_s) and now_s < self._until_s and not self.lost

    def round(self) -> None:
        """Read the lease; renew it, claim it, or find that another host has it.

        Call it every ``ROUND_S`` seconds.

        Raises:
            OSError: the folder cannot be read or written now; the round does not count.
        """
        began_s = self._clock()
        holder, count = self._read(began_s)
        ours = holder == self._name
        if self._acted(began_s) and (began_s >= self._until_s or not ours):
            self.lost = True
        elif holder is None or ours or began_s - self._seen_s >= PATIENCE_S:
            if self._acts_s is None or not ours:
                self._acts_s = began_s + SETTLE_S
            self._renew(count + 1, began_s)
        else:
            self._acts_s = None

    def _acted(self, now_s: float) -> bool:
        return self._acts_s is not None and self._acts_s <= now_s

    def _renew(self, count: int, began_s: float) -> None:
        beside = self.path.with_name(f"{self.path.name}.{self._name}")
        with beside.open("w") as file:
            json.dump({"holder": self._name, "count": count}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        if self._clock() - began_s <= ROUND_S:
            self._until_s = began_s + VALID_S
        elif not self._acted(began_s):  # it may have overwritten another host's claim
            self._acts_s = self._clock() + SETTLE_S

    def _read(self, now_s: float) -> tuple[str | None, int]:
        """Return who has the lease (None: there is none), and how often it was renewed."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None, 0
        if raw != self._seen:
            self._seen, self._seen_s = raw, now_s
        try:
            said = json.loads(raw)
            return str(said["holder"]), int(said["count"])
        except (ValueError, KeyError, TypeError):
            return "", 0  # nobody's, once it has not changed for a while


def wait_to_lead(
    what: str, shared: Path, state: Path, beat: Callable[[], object] = lambda: None
) -> Lease:
    """Wait until ``what`` may work on this host; when it no longer may, the process ends.

    All hosts see the folder ``shared``. ``state`` is this host's own folder, and only this process
    uses it for ``what``. ``beat`` is called again and again during the wait.

    Raises:
        OSError, StateError: one of the folders cannot be used.
    """
    name = host_name(state)
    try:
        make_private(shared)  # it is not made: a host that alone sees it would work beside another
        lease = Lease(shared / f"{what}.lease", name)
        lease.round()
    except OSError as error:
        raise StateError(
            f"shared: {error.filename or shared}: {error.strerror}; make the folder, mount it, or "
            "correct --shared ('shared' in bftrainer.toml)"
        ) from error
    threading.Thread(target=_renew, args=(lease,), name="lease", daemon=True).start()
    if not lease.holds():
        logger.info("waiting: the %s may be at work on another host (%s)", what, lease.path)
    while not lease.holds():
        beat()
        time.sleep(ROUND_S / 4)
    logger.info("the %s works on this host from now on", what)
    threading.Thread(target=_end_with, args=(lease, what), name="leading", daemon=True).start()
    return lease


def host_name(state: Path) -> str:
    """Return this host's name in leases: unique, made at the first call, and then kept."""
    return f"{socket.gethostname().partition('.')[0]}-{own_text(state / 'host.id')[:8]}"


def _renew(lease: Lease) -> None:
    trouble = ""
    while True:
        time.sleep(ROUND_S)
        try:
            lease.round()
            trouble = ""
        except OSError as error:
            if str(error) != trouble:
                logger.warning("the lease cannot be renewed: %s", error)
            trouble = str(error)


def _end_with(lease: Lease, what: str) -> None:
    """When the lease is lost, end the process at once: another host does the work then."""
    while lease.holds():
        time.sleep(_LOOK_S)
    logger.error("the %s ends: %s was not renewed in time, or is another host's", what, lease.path)
    os._exit(LOST)
