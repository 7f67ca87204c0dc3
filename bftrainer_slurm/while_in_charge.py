"""A site with two hosts: keeper, controller and reader work where slurmctld is in charge.

Each of them waits until ``scontrol ping`` says so and it has the lock of a file in the folder that
the hosts share. The lock goes with its host. A host that is cut off lives on, but the file server
may give its lock away: so a program ends, to wait again, when for ``LIMIT_S`` slurmctld was not in
charge here, or the locked file could not be written.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bftrainer_slurm.keeper.home import StateError, make_private, only_one
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.in_charge import conf_for, in_charge, obeys, ping
from bftrainer_slurm.slurm.run import SlurmRunner

logger = logging.getLogger(__name__)

ENDED = 75  # EX_TEMPFAIL: the service manager starts the process again, and it waits
LIMIT_S = 45.0  # less than a file server waits for a silent host; NFSv4: 90 s
_LOOK_S = 2.0
_CHECK_S = 0.1
_PING_S = 20.0  # a host without power costs each command of Slurm some seconds
_OBEYS_S = 4.0  # commands wait by themselves for half of SlurmctldTimeout if slurmctld stands by


def boot_time_s() -> float:
    """Return the seconds since this host was booted, including those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Watch:
    """Whether this host may work: slurmctld is in charge here, and the lock is ours.

    ``lock`` is a file descriptor; ``ask`` returns slurmctld's hosts, and whether they answer.
    """

    def __init__(
        self,
        lock: int,
        ask: Callable[[], Mapping[str, bool]],
        host: str,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self._lock, self._ask, self._host, self._clock = lock, ask, host, clock
        self._names = {host.lower(), host.partition(".")[0].lower()}
        self._until_s = clock()
        self._trouble = ""
        self.hosts: Mapping[str, bool] = {}  # the last answer

    def holds(self) -> bool:
        """Return whether the last good look is recent. Reads the clock, and nothing else."""
        return self._clock() < self._until_s

    def look(self) -> None:
        """Ask where slurmctld is in charge; if it is here, take the lock or show that we have it.

        Raises:
            StateError: slurmctld has other hosts.
        """
        began_s = self._clock()
        self.hosts = hosts = self._answer()
        if hosts and not self._names & {host.lower() for host in hosts}:
            known = ", ".join(hosts)
            raise StateError(
                f"shared: this host ({self._host}) has no slurmctld: scontrol ping says {known}"
            )
        if (in_charge(hosts) or "").lower() in self._names and self._write():
            self._until_s = began_s + LIMIT_S

    def _write(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no change if it is ours
            os.pwrite(self._lock, f"{self._host} {os.getpid()}\n".encode(), 0)
            os.fsync(self._lock)
        except OSError:  # another one has it, or the file server has given it away
            return False
        return True

    def _answer(self) -> Mapping[str, bool]:
        try:
            return self._ask()
        except GatewayError as error:
            if str(error) != self._trouble:
                logger.warning("%s", error)
            self._trouble = str(error)
            return {}


@contextmanager
def place_to_work(
    what: str, state: Path, shared: Path | None, beat: Callable[[], object] = lambda: None
) -> Iterator[Path]:
    """Yield the folder where ``what`` may work now: ``state``, or the one that two hosts share.

    With a ``shared`` folder first wait for this host's turn, and call ``beat`` again and again; the
    process ends when the turn is over.

    Raises:
        OSError: ``state`` cannot be used.
        StateError: likewise; another one works there; ``shared`` cannot be used.
    """
    if shared is None:
        with only_one(what, state):
            yield state
        return
    os.umask(0o077)
    host, usual = socket.gethostname(), os.environ.get("SLURM_CONF")
    try:
        make_private(shared)  # it is not made: a host that alone sees it would work beside another
        lock = os.open(shared / f"{what}.lock", os.O_RDWR | os.O_CREAT)
        here = conf_for(host, shared / f"slurm.{host}.{what}", usual)
    except OSError as error:
        raise StateError(
            f"shared: {error.filename or shared}: {error.strerror}; make the folder, mount it, or "
            "correct 'shared' in bftrainer.toml"
        ) from error
    runner = SlurmRunner(_PING_S, dict(os.environ))
    watch, over = Watch(lock, lambda: ping(runner), host), threading.Event()

    def look() -> None:
        watch.look()
        if watch.hosts:
            _set_conf(usual if next(iter(watch.hosts.values())) else here)

    try:
        look()
        if not watch.holds():
            logger.info("waiting until slurmctld is in charge here, and no other %s works", what)
        while not watch.holds():
            beat()
            time.sleep(_LOOK_S)
            look()
        logger.info("the %s works on this host from now on", what)
        threading.Thread(target=_keep_looking, args=(look, over), daemon=True).start()
        threading.Thread(target=_end_in_time, args=(watch, what, over), daemon=True).start()
        yield shared
    finally:
        over.set()  # the lock stays open: a look may still write to it


def wait_for_slurmctld(beat: Callable[[], object]) -> None:
    """Wait until slurmctld does what it is asked: it may be about to take over."""
    while not obeys(SlurmRunner(timeout_s=_OBEYS_S)):
        beat()
        time.sleep(_LOOK_S)


def _set_conf(conf: str | None) -> None:
    if conf is None:
        os.environ.pop("SLURM_CONF", None)
    else:
        os.environ["SLURM_CONF"] = conf


def _keep_looking(look: Callable[[], None], over: threading.Event) -> None:
    while not over.wait(_LOOK_S):
        try:
            look()
        except StateError as error:
            logger.error("%s", error)


def _end_in_time(watch: Watch, what: str, over: threading.Event) -> None:
    """End the process at once when the other host may work; a look may hang with its folder."""
    while not over.wait(_CHECK_S):
        if not watch.holds():
            text = "the %s ends: for %.0f s slurmctld was not in charge here, or the lock not ours"
            logger.error(text, what, LIMIT_S)
            os._exit(ENDED)
