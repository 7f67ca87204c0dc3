"""An element trains one thing at a time: its only launcher is known by the name that it holds.

Two of them would take each other's place in the trainer's group, and other nodes might have
started the other one first. Of several sruns of a batch script, the script's node says which one it
is that all nodes train: the first that asks.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import NoReturn

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.tasks import seats

ENDING_S = 10.0  # one that was killed may end so long after its script has gone on
HELD = "BFTRAINER_HELD"  # the descriptor of what ``hold`` has given to the program before
_LOOK_S = 0.2
_ANSWER_S = 5.0
_CREDENTIALS = struct.Struct("3i")  # a process, its user, its group
_BESIDE = (
    "an srun trains already: the other nodes take part in that one, and this one runs on {} alone, "
    "as in an ordinary job of one node. For several trainings submit a trainer each"
)


def trains_beside(environment: Mapping[str, str]) -> bool:
    """Whether another srun of the batch script trains; if not, the other nodes start this one too.

    Asked of ``batch.steps`` as soon as it is certain that this process trains.
    """
    name = environment.get("BFTRAINER_SRUNS")
    if not name or "BFTRAINER_STEP" not in environment:
        return False
    answer = b""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(f"\0{name}")
        answer = asking.recv(16)
    beside = answer == b"beside\n"
    if beside and environment.get("SLURM_LOCALID", "0") == "0":
        say(_BESIDE.format(environment.get("SLURMD_NODENAME", "this node")))
    return beside


def begin_as_in_an_ordinary_job(environment: Mapping[str, str]) -> NoReturn:
    """Begin this process again, without what makes it one of an element."""
    ours = ("BFTRAINER_", "PET_")
    own = {name: value for name, value in environment.items() if not name.startswith(ours)}
    os.execve(sys.executable, sys.orig_argv, own)


def hold(environment: Mapping[str, str], wait_s: float = ENDING_S) -> socket.socket | None:
    """Return what makes this process the element's only launcher until it ends; None: another is.

    Where one of another task of the same srun is it, it trains for this one too: then this process
    waits for its end, and does no more.
    """
    words = (environment.get(name, "") for name in ("BFTRAINER_KEEPER", "SLURM_JOB_ID"))
    name = "-".join(("\0bftrainer", environment["BFTRAINER_ELEMENT"], *words))
    held = socket.socket(socket.AF_UNIX)  # in no folder: an abstract name, which ends with us
    until_s = time.monotonic() + wait_s
    while True:
        try:
            held.bind(name)
            held.listen()
            return held
        except OSError:
            if seats.is_neighbour(holder := _holder_of(name), environment):
                _wait_for(holder, environment)
            if time.monotonic() > until_s:
                held.close()
                return None
            time.sleep(_LOOK_S)


def is_only_launcher(environment: MutableMapping[str, str], wait_s: float = ENDING_S) -> bool:
    """Whether no other launcher trains in this element; then this process is it until it ends.

    It may be that since before, as another program: see ``HELD``.
    """
    if HELD in environment:
        held = socket.socket(fileno=int(environment.pop(HELD)))
        held.set_inheritable(False)
    elif (made := hold(environment, wait_s)) is not None:
        held = made
    else:
        return False
    os.register_at_fork(after_in_child=held.close)  # which also keeps it
    return True


def _holder_of(name: str) -> int:
    """Return the process that holds a name; 0: it has ended."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(name)
        told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(told)[0])
    return 0


def _wait_for(process: int, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by one that waits for another: it keeps no memory of a GPU."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        raise SystemExit(0) from None
    os.set_inheritable(handle, True)
    wait = f"import select; select.select([{handle}], [], [])"  # it can be read when it has ended
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-S", "-c", wait], dict(environment))
