"""An element trains one thing at a time: its only launcher is known by the name that it holds.

Two of them would take each other's place in the trainer's group, and other nodes might have
started the other one first.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

ENDING_S = 10.0  # one that was killed may end so long after its script has gone on
_LOOK_S = 0.2


def is_only_launcher(environment: Mapping[str, str], wait_s: float = ENDING_S) -> bool:
    """Whether no other launcher trains in this element; then this process is it until it ends."""
    words = (environment.get(name, "") for name in ("BFTRAINER_KEEPER", "SLURM_JOB_ID"))
    name = "-".join(("\0bftrainer", environment["BFTRAINER_ELEMENT"], *words))
    held = socket.socket(socket.AF_UNIX)  # in no folder: an abstract name, which ends with us
    until_s = time.monotonic() + wait_s
    while True:
        try:
            held.bind(name)
        except OSError:
            if time.monotonic() < until_s:
                time.sleep(_LOOK_S)
                continue
            held.close()
            return False
        os.register_at_fork(after_in_child=held.close)  # which also keeps it
        return True
