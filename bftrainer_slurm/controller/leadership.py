"""A controller with a second host: it works while its host has the lease, and shares its results.

``keeper.lease`` holds the lease, and ends the process with it. Each host has a history of its own,
because two hosts must not write one SQLite file. What plans and verdicts rest on is copied to the
folder that they share, see ``state.handover``.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bftrainer_slurm.controller.state.handover import NO_ROWS, Rows, rows_of, valid_rows
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.lease import Lease, host_name, wait_to_lead
from bftrainer_slurm.slurm.detour import SLOW_S, Detour
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError
from bftrainer_slurm.slurm.run import SlurmRunner

logger = logging.getLogger(__name__)

_WORD = "controller.json"
_SHARE_EVERY_S = 60.0
_LAST_S = 5.0  # for the last word, before the process ends
_LARGEST = 64 * 2**20  # bytes
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
    """This host's history, with what controllers have left in the shared folder.

    A thread of its own writes there, once a minute, and when a trainer is over or an element is
    asked to leave: no turn waits for a slow file system.

    Raises:
        HistoryError: the file cannot be used.
        OSError: the shared folder cannot be read.
    """

    def __init__(self, state: Path, shared: Path) -> None:
        self._file, self._word = state / "history.sqlite", shared / _WORD
        super().__init__(self._file)
        self._host = host_name(state)
        host, rows = _read(self._word)
        if host != self._host:
            self.end_unseen()
        self.take_over(rows)
        self._closes = False
        self._sharing = threading.Thread(target=self._share_news, name="sharing", daemon=True)
        self._sharing.start()

    def close(self) -> None:
        """Share the last news, and close the file."""
        self._closes = True
        self.news.set()
        self._sharing.join(_LAST_S)
        super().close()

    def _share_news(self) -> None:
        closes = False
        while not closes:
            closes = self._closes  # if so, what comes next is the last
            try:
                # A file that lacks what was noted must not take the place of what others left.
                if self.trouble is None:
                    self._share()
            except Exception as error:
                logger.warning(
                    "%s was not written (%s): the other hosts do not learn what this one does",
                    self._word,
                    error,
                )
            if not closes:
                self.news.wait(_SHARE_EVERY_S)
                self.news.clear()

    def _share(self) -> None:
        text = json.dumps({"host": self._host, "rows": rows_of(self._file)})
        beside = self._word.with_name(f"{_WORD}.{self._host}")
        with beside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._word)


def _read(word: Path) -> tuple[str, Rows]:
    """Return which host has written last, and what it has left; both may be empty."""
    try:
        with word.open("rb") as file:
            said = json.loads(file.read(_LARGEST))
        host, told = str(said["host"]), said["rows"]
        rows = valid_rows(told)
        if left_out := sum(len(told.get(table, ())) - len(rows[table]) for table in rows):
            logger.warning("%s: rows left out: %d; is it of another version?", word, left_out)
        return host, rows
    except FileNotFoundError:
        return "", NO_ROWS
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        logger.error(
            "%s cannot be read (%s): trainers that were given up may be tried again", word, error
        )
        return "", NO_ROWS
