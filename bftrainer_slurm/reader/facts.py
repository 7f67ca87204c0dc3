"""The controller's last status. The reader asks the keeper for it, once a second at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer_slurm.controller.publish.status import SCHEMA
from bftrainer_slurm.keeper.client import KeeperError

_KEPT_S = 1.0
_NOTHING = "the controller has published nothing yet, or its keeper does not answer"


class RequestError(ValueError):
    """A request that cannot be answered; the message says why. ``status`` is HTTP's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Published:
    """A status, its age in seconds, and what the keeper says about itself (None: no answer)."""

    status: Mapping[str, Any]
    age_s: float
    keeper: Mapping[str, Any] | None


class Facts:
    """Keeps the last status. ``ask`` returns a keeper's answer, as ``KeeperClient.status`` does."""

    def __init__(
        self,
        ask: Callable[[], tuple[float, dict[str, Any] | None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask, self._clock = ask, clock
        self._lock = threading.Lock()
        self._asked_s = float("-inf")
        self._status: dict[str, Any] | None = None
        self._keeper: dict[str, Any] | None = None

    def latest(self) -> Published:
        """Return the last status, also while the keeper does not answer.

        Raises:
            RequestError: there is no status, or none that this reader may serve.
        """
        with self._lock:
            if time.monotonic() - self._asked_s >= _KEPT_S:
                self._refresh()
                self._asked_s = time.monotonic()
            status, keeper = self._status, self._keeper
        if status is None:
            raise RequestError(_NOTHING, 503)
        if status.get("schema", SCHEMA) != SCHEMA:
            raise RequestError("controller and reader differ in version: restart both", 503)
        return Published(status, max(0.0, self._clock() - status["time_s"]), keeper)

    def _refresh(self) -> None:
        self._keeper = None
        try:
            _, found = self._ask()
        except (KeeperError, OSError, ValueError):
            return
        if found is not None:
            self._keeper = found.pop("keeper", None)
            self._status = found
