"""Runs the controller's turns one after the other, even if they fail, and publishes the status."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.observe.feed import Feed
from bftrainer_slurm.controller.publish.keys import link_of
from bftrainer_slurm.controller.publish.status import no_status
from bftrainer_slurm.controller.settings_file import LiveSettings
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError

logger = logging.getLogger(__name__)

_BACKLOG_S = 10.0  # how long the first turn waits for old notes: the keeper may not answer
_COALESCE_S = 0.05  # elements of one reclaim send their notes at about the same time
_CLOCK_SET_S = 5.0
_FAILURES_ENOUGH = 3  # after this many failed turns in a row, the controller's state may be wrong
PUBLISH_EVERY_S = 2.0
_LONG_S = 10.0


def notify(state: str) -> None:
    """Send systemd a state such as ``READY=1`` (sd_notify(3)), if it has started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # in the abstract namespace, see unix(7)
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


class Publisher:
    """Publishes the status through the keeper in its own thread, so also during a long turn.

    Then ``busy_s`` in the status says how long the turn has lasted.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._status: dict[str, Any] | None = None
        self._shown_s = time.monotonic()
        self._changed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)

    def start(self) -> None:
        """Start the thread that publishes."""
        self._thread.start()

    @property
    def age_s(self) -> float:
        """How long the present status has been published."""
        return time.monotonic() - self._shown_s

    def show(self, status: dict[str, Any]) -> None:
        """Publish this status from now on."""
        self._status, self._shown_s = status, time.monotonic()
        self._changed.set()

    def stop(self, last: dict[str, Any]) -> None:
        """Publish a final status, then stop."""
        self._stopped = True
        self._changed.set()
        self._thread.join()
        self._publish(last)

    def _run(self) -> None:
        while not self._stopped:
            self._changed.wait(PUBLISH_EVERY_S)
            self._changed.clear()
            status, age_s = self._status, self.age_s
            if status is None or self._stopped:
                continue
            if age_s > _LONG_S:
                about = status["controller"] | {"busy_s": age_s}
                status = status | {"controller": about}
            self._publish(status)

    def _publish(self, status: dict[str, Any]) -> None:
        _, keeper = self._feed.keeper
        try:
            keeper.publish(status)
        except Exception as error:
            logger.warning("status not published: %s", error)


class Turns:
    """Runs the controller's turns one after the other, even if they fail.

    The controller starts afresh if the clock was set, its settings change, or three turns in a row
    fail. It then reads all that it has to know from Slurm and the history.
    """

    def __init__(
        self,
        make: Callable[[], Controller],
        feed: Feed,
        about: Mapping[str, Any],
        settings: LiveSettings,
        page_secret: str = "",
    ) -> None:
        self._make = make
        self._settings = settings
        self._controller = make()
        self._feed = feed
        self.publisher = Publisher(feed)
        self._page_secret = page_secret
        self.about = dict(about) | {"failed_turns": 0, "error": None}
        self._failed = 0  # turns in a row
        self._ahead_s = time.time() - time.monotonic()
        self._keeper = ""

    def run(self, stop: threading.Event) -> None:
        """Run turns until ``stop`` is set."""
        self.publisher.start()
        notify("READY=1")
        while not stop.is_set():
            notify("WATCHDOG=1")
            try:
                self._restart_if_needed()
                turned = self._step()
            except Exception as error:
                turned = True
                self._note_failure(error)
            if turned or self.publisher.age_s >= PUBLISH_EVERY_S:
                self.publisher.show(self.status())
        notify("STOPPING=1")
        self.publisher.stop(self.status(error="stopped"))
        logger.info("stopped; running trainers go on")

    def status(self, **changes: str) -> dict[str, Any]:
        """Return the status, or a short one that says why there is no status."""
        about = self.about | {"settings": self._settings.trouble} | changes
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

    def _step(self) -> bool:
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
        self._failed, self.about["error"] = 0, controller.decision.trouble
        return True

    def _note_failure(self, error: Exception) -> None:
        """Log and publish the failure; the schedule says when the next turn is due.

        A turn does not count as failed if slurmctld does not answer. All other errors count.
        """
        if not isinstance(error, SlurmUnavailableError):
            self._failed += 1
            self.about["failed_turns"] += 1
        if isinstance(error, GatewayError):
            self.about["error"] = str(error)
            logger.error("%s", error)
            return
        self.about["error"] = f"a turn failed: {type(error).__name__}: {error}"
        logger.exception("a turn failed; trying again")

    def _restart_if_needed(self) -> None:
        ahead_s = time.time() - time.monotonic()
        set_by_s = ahead_s - self._ahead_s
        clock_was_set = abs(set_by_s) > _CLOCK_SET_S
        if self._settings.asked and self._settings.reload():
            self._restart()
        elif clock_was_set or self._failed >= _FAILURES_ENOUGH:
            why = f"the clock was set by {set_by_s:+.0f} s" if clock_was_set else "turns fail"
            logger.warning("%s: the controller discards its state and starts afresh", why)
            before = self._controller.schedule
            self._restart()
            if not clock_was_set:
                self._controller.schedule.take_backoff(before)
        self._ahead_s = ahead_s

    def _restart(self) -> None:
        self._controller, self._failed = self._make(), 0
        self._feed.reread()
