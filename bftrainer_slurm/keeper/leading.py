"""Working only while this host has the lease: waiting for it, and ending when it has run out.

Keeper and controller have a lease each, so that each of them may be restarted by itself. How a
lease is held is in ``lease``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bftrainer_slurm.keeper.home import own_text
from bftrainer_slurm.keeper.lease import ROUND_S, Lease
from bftrainer_slurm.keeper.private import private_folder

logger = logging.getLogger(__name__)

LOST = 75  # EX_TEMPFAIL: the service manager starts this process again, to wait for its turn
_LOOK_S = 0.1


def wait_to_lead(
    what: str, shared: Path, state: Path, beat: Callable[[], object] = lambda: None
) -> Lease:
    """Return once this host is the one whose ``what`` works; the process ends when it is not.

    ``shared`` is the folder that all hosts see, ``state`` this host's own, which only this process
    uses for ``what``. ``beat`` is called again and again meanwhile.

    Raises:
        OSError, StateError: one of the folders cannot be used.
    """
    private_folder(shared)
    lease = Lease(shared / f"{what}.lease", host_name(state))
    lease.round()
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
    """Return a name that no other host has, and this one keeps; made at the first call."""
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
    """End the process at once: whatever it would still do, another host does from now on."""
    while lease.holds():
        time.sleep(_LOOK_S)
    logger.error("the %s ends: %s was not renewed in time, or is another host's", what, lease.path)
    os._exit(LOST)
