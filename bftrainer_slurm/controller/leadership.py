"""A controller with a second host: it works while its host has the lease, and shares its results.

``keeper.lease`` holds the lease, and ends the process with it. Each host has a history of its own,
because two hosts must not write one SQLite file. Both must know which trainers are over, so this is
copied to the folder that they share.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.lease import Lease, host_name, wait_to_lead
from bftrainer_slurm.slurm.detour import SLOW_S, Detour
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.run import SlurmRunner

logger = logging.getLogger(__name__)

_WORD = "controller.json"
# A slurmctld that has not taken over yet makes a command sleep for half its SlurmctldTimeout.
_ANSWER_S = 4.0
_AGAIN_S = 0.5
_LONGEST_WAIT_S = 600.0  # after this the loop says that slurmctld does not answer
_CHANGES_NOTHING = (
    *("name", "queue_rpcs", "grow_rpcs"),
    *("nodes", "queue", "reservations", "configuration", "last_pass"),
)


def take_the_lead(
    shared: Path, state: Path, gateway: Gateway, beat: Callable[[], object] = lambda: None
) -> Gateway:
    """Return when this host's controller is the one that works, with its gateway to Slurm.

    ``shared`` is the folder that all hosts see, ``state`` this host's own. ``beat`` is called
    again and again meanwhile.

    Raises:
        OSError, StateError: one of the folders cannot be used.
    """
    lease = wait_to_lead("controller", shared, state, beat)
    detour = Detour(state / "detour")
    _wait_for_slurmctld(detour, beat)
    return cast(Gateway, LeadersGateway(gateway, lease, detour))


def _wait_for_slurmctld(detour: Detour, beat: Callable[[], object]) -> None:
    """Wait until slurmctld answers: it may have lost its host too, and take over later."""
    runner = SlurmRunner(timeout_s=_ANSWER_S)
    until_s = time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < until_s:
        beat()
        detour.mind()
        detour.took(SLOW_S)  # the host that worked before may be silent
        try:
            runner.read("scontrol", "show", "reservation")
        except SlurmUnavailableError:
            time.sleep(_AGAIN_S)
        else:
            return


class LeadersGateway:
    """A gateway that changes nothing unless the lease is held at that moment.

    The process ends soon after the lease does, but a process that was stopped and goes on might
    act first. ``detour`` avoids a silent host of slurmctld.
    """

    def __init__(self, gateway: Gateway, lease: Lease, detour: Detour) -> None:
        self._gateway = gateway
        self._lease = lease
        self._detour = detour

    def __getattr__(self, name: str) -> Any:
        if name not in _CHANGES_NOTHING and not self._lease.holds():
            raise SlurmUnavailableError("another host's controller may be at work: nothing changed")
        request = getattr(self._gateway, name)
        if not callable(request):
            return request

        def ask(*words: Any, **more: Any) -> Any:
            self._detour.mind()
            began_s = time.monotonic()
            try:
                return request(*words, **more)
            finally:
                self._detour.took(time.monotonic() - began_s)

        return ask


class SharedHistory(History):
    """This host's history, with what the other hosts' controllers have found.

    Raises:
        HistoryError: the file cannot be used.
        OSError: the shared folder cannot be read or written.
    """

    def __init__(self, state: Path, shared: Path) -> None:
        super().__init__(state / "history.sqlite")
        self._word = shared / _WORD
        self._host = host_name(state)
        host, over = _read(self._word)
        if host != self._host:
            self.resume_after_others(over)
        self._share()

    def end(self, array: int, why: str) -> None:
        """Note that a trainer is over, here and for the other hosts."""
        super().end(array, why)
        try:
            self._share()
        except OSError as error:  # the lease is in the same folder, and will run out
            logger.warning("the other hosts do not know that %d is over: %s", array, error)

    def _share(self) -> None:
        beside = self._word.with_name(f"{_WORD}.{self._host}")
        with beside.open("w") as file:
            json.dump({"host": self._host, "over": self.over()}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._word)


def _read(word: Path) -> tuple[str, list[tuple[int, str, float, str]]]:
    """Return which host has written last, and the trainers that are over; both may be empty."""
    try:
        said = json.loads(word.read_bytes())
        over = [
            (int(array), str(id_), float(time_s), str(why))
            for array, id_, time_s, why in said["over"]
        ]
        return str(said["host"]), over
    except FileNotFoundError:
        return "", []
    except (ValueError, KeyError, TypeError) as error:
        logger.error(
            "%s cannot be read (%s): trainers that were given up may be tried again", word, error
        )
        return "", []
