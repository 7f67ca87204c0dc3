"""The site's controller as a service: started again when it ends, as systemd does it.

Its wall clock can be set apart from the host's, so that nobody else's clock is touched.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scripts.labcluster.controller import Controller

_RESTART_S = 2.0  # systemd's RestartSec in packaging/systemd
_HERE = Path(__file__).resolve().parent


@dataclass
class Service(Controller):
    """A controller that is started again when it ends."""

    held: bool = False  # not to be started again for now
    _ended_s: float = 0.0

    def start(self) -> None:
        """Start it, if it does not run, and do not wait: it may well have nothing to publish by."""
        self.held = False
        self.launch()

    def tend(self) -> None:
        """Start it again a moment after it has ended, unless it is held."""
        if self._process is None or self._process.poll() is None:
            return
        if not self._ended_s:
            self._ended_s = time.monotonic()
        if not self.held and time.monotonic() - self._ended_s >= _RESTART_S:
            self._ended_s = 0.0
            self.start()

    def kill(self, hold: bool = False) -> None:
        """SIGKILL it; ``hold``: it is not started again until ``start``."""
        self.held = hold
        super().kill()

    def stop(self) -> None:
        """End it as systemd does, in the end by force; it is not started again until ``start``."""
        with suppress(subprocess.TimeoutExpired):
            super().stop()
        self.held = True

    def children(self) -> list[int]:
        """Return the process ids of its children."""
        if self.pid is None:
            return []
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(word) for word in path.read_text().split()]


class Clock:
    """Sets the wall clock of the processes that have ``environment``."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock-offset"
        self._offset.write_text("0")
        library = folder / "clock.so"
        command = ("gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2")
        subprocess.run([*command, "-o", library, _HERE / "clock.c", "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "BFTRAINER_CHAOS_CLOCK": str(self._offset)}

    def step(self, seconds: int) -> None:
        """Put the clock ahead by so many seconds of the host's (less than 0: back)."""
        beside = self._offset.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(self._offset)
