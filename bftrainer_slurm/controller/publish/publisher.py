"""Publishes the status through the keeper, again and again, however long a turn lasts."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from bftrainer_slurm.controller.observe.feed import Feed

logger = logging.getLogger(__name__)

PUBLISH_EVERY_S = 2.0
_LONG_S = 10.0


class Publisher:
    """A thread of its own. ``busy_s`` in the status says how long a turn has lasted."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._status: dict[str, Any] | None = None
        self._shown_s = time.monotonic()
        self._changed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    @property
    def age_s(self) -> float:
        """For how long it has published the same status."""
        return time.monotonic() - self._shown_s

    @property
    def published(self) -> tuple[dict[str, Any] | None, float]:
        """The last status, None at first, and for how long it has been the same."""
        return self._status, self.age_s

    def show(self, status: dict[str, Any]) -> None:
        """Publish this from now on."""
        self._status, self._shown_s = status, time.monotonic()
        self._changed.set()

    def stop(self, last: dict[str, Any]) -> None:
        """Publish a last status, then stop."""
        self._stopped = True
        self._changed.set()
        self._thread.join()
        self._publish(last)

    def _run(self) -> None:
        while not self._stopped:
            self._changed.wait(PUBLISH_EVERY_S)
            self._changed.clear()
            status, age_s = self.published
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
