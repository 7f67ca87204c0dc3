"""Runs the controller's turns one after the other, even if they fail, and publishes the status."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.observe.feed import Feed
from bftrainer_slurm.controller.publish.keys import link_of
from bftrainer_slurm.controller.publish.status import no_status
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError

logger = logging.getLogger(__name__)

_BACKLOG_S = 10.0  # how long the first turn waits for old notes: the keeper may not answer
_COALESCE_S = 0.05  # elements of one reclaim send their notes at about the same time
_CLOCK_SET_S = 5.0
_FAILURES_ENOUGH = 5  # after this many failed turns in a row, the controller's state may be wrong
PUBLISH_EVERY_S = 2.0


class RestartError(Exception):
    """The controller has to start again, because its state is wrong; the message says why."""


def notify(state: str) -> None:
    """Send systemd a state such as ``READY=1`` (sd_notify(3)), if it has started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # in the abstract namespace, see unix(7)
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


class Turns:
    """Runs the controller's turns one after the other, even if they fail.

    The status is published after each turn, and every two seconds between turns.
    """

    def __init__(
        self,
        controller: Controller,
        feed: Feed,
        about: Mapping[str, Any],
        page_secret: str = "",
    ) -> None:
        self._controller = controller
        self._feed = feed
        self._page_secret = page_secret
        self.about = dict(about) | {"failed_turns": 0, "error": None}
        self._failed = 0  # turns in a row
        self._ahead_s = time.time() - time.monotonic()
        self._keeper = ""

    def run(self, stop: threading.Event) -> None:
        """Run turns until ``stop`` is set.

        Raises:
            RestartError: the clock was set, or turns fail: a new process reads all that it has to
                know from Slurm and the history.
        """
        notify("READY=1")
        published_s = time.monotonic()
        try:
            while not stop.is_set():
                notify("WATCHDOG=1")
                self._check_clock()
                if self._step() or time.monotonic() >= published_s + PUBLISH_EVERY_S:
                    self._publish(self.status())
                    published_s = time.monotonic()
        except RestartError as error:
            self._publish(self.status(error=str(error)))
            raise
        notify("STOPPING=1")
        self._publish(self.status(error="stopped"))
        logger.info("stopped; running trainers go on")

    def status(self, **changes: str) -> dict[str, Any]:
        """Return the status, or a short one that says why there is no status."""
        about = self.about | changes
        try:
            status = self._controller.status(about)
        except Exception as error:
            logger.exception("no status")
            return no_status(time.time(), about | {"error": f"no status: {error}"})
        if self._page_secret:
            for one in status["trainers"]:
                one["page"] = link_of(
                    about["metrics"], one["array"], one["user"], self._page_secret
                )
        return status

    def _publish(self, status: dict[str, Any]) -> None:
        _, keeper = self._feed.keeper
        try:
            keeper.publish(status)
        except Exception as error:
            logger.warning("status not published: %s", error)

    def _step(self) -> bool:
        """Read notes for a while, then run a turn if it is due; return whether one was tried."""
        try:
            turned = self._turn_if_due()
        except Exception as error:
            self._note_failure(error)
            return True
        if turned:
            self._failed, self.about["error"] = 0, self._controller.decision.trouble
        return turned

    def _turn_if_due(self) -> bool:
        """Read notes for a while, then run a turn if it is due; return whether a turn ran.

        The first turn waits for all notes that the keeper remembers, so that nothing that has
        finished runs again.
        """
        controller, until_s = self._controller, time.monotonic() + _BACKLOG_S
        while not self._feed.caught_up and not controller.looked and time.monotonic() < until_s:
            controller.take(self._feed.wait(_COALESCE_S))
        due_s = controller.schedule.due_s() - time.time()
        controller.take(self._feed.wait(min(due_s, PUBLISH_EVERY_S)))
        identity, _ = self._feed.keeper
        if identity != self._keeper:  # a new keeper knows nothing yet
            self._keeper = identity
            controller.introduce()
        if not controller.schedule.is_due(time.time()):
            return False
        controller.take(self._feed.wait(_COALESCE_S))
        controller.turn()
        return True

    def _note_failure(self, error: Exception) -> None:
        """Log and publish the failure; the schedule says when the next turn is due.

        A turn does not count as failed if slurmctld does not answer. All other errors count.

        Raises:
            RestartError: our own code has failed in many turns in a row.
        """
        if not isinstance(error, SlurmUnavailableError):
            self.about["failed_turns"] += 1
        if isinstance(error, GatewayError):
            self.about["error"] = str(error)
            logger.error("%s", error)
            return
        self._failed += 1
        self.about["error"] = f"a turn failed: {type(error).__name__}: {error}"
        logger.exception("a turn failed; trying again")
        if self._failed >= _FAILURES_ENOUGH:
            raise RestartError(f"{self._failed} turns failed in a row: {error!r}")

    def _check_clock(self) -> None:
        """Raise RestartError if the clock was set."""
        ahead_s = time.time() - time.monotonic()
        set_by_s, self._ahead_s = ahead_s - self._ahead_s, ahead_s
        if abs(set_by_s) > _CLOCK_SET_S:
            raise RestartError(f"the clock was set by {set_by_s:+.0f} s")
