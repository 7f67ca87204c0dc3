"""The site's controller as a service, which is started again when it ends, as by systemd.

Its wall clock can be set apart from the host's, so that nobody else's clock is touched.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import DEFAULT_TIMEOUT_S
from scripts.benchkit.command import replace_file
from scripts.labcluster.controller import Controller
from scripts.labcluster.keeper import published

_RESTART_S = 2.0  # systemd's RestartSec in packaging/systemd
_OFFSET = "clock-offset"
_CLOCK = Path(__file__).resolve().parent / "clock.c"


@dataclass
class Service(Controller):
    """A controller that is started again when it ends."""

    held: bool = False  # not to be started again for now
    _ended_s: float | None = None

    def start(self) -> None:
        """Start it, if it does not run, and do not wait: it may have no keeper to publish by."""
        self.held, self._ended_s = False, None
        self.launch()

    def tend(self) -> None:
        """Start it again a moment after it has ended, unless it is held."""
        if self._daemon is None or self.held or self.pid is not None:
            return
        now_s = time.monotonic()
        if self._ended_s is None:
            self._ended_s = now_s
        elif now_s - self._ended_s >= _RESTART_S:
            self.start()

    def status(self) -> dict[str, Any]:
        """Return what it published last; a keeper that is frozen holds nobody up."""
        return published(replace(self.keeper.client, timeout_s=DEFAULT_TIMEOUT_S))

    def kill(self, hold: bool = False) -> None:
        """SIGKILL it; with ``hold`` it is not started again until ``start``."""
        self.held = hold
        super().kill()

    def stop(self) -> None:
        """End it as systemd does, by force if need be; it is not started again until ``start``."""
        with suppress(TimeoutError):
            super().stop()
        self.held = True


def clock_environment(folder: Path) -> dict[str, str]:
    """Return the variables of processes whose wall clock ``set_clock`` sets."""
    library = folder / "clock.so"
    command = ("gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2")
    subprocess.run([*command, "-o", library, _CLOCK, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "BFTRAINER_CHAOS_CLOCK": str(folder / _OFFSET)}


def set_clock(folder: Path, ahead_s: int) -> None:
    """Set the clock ahead of the host's by ``ahead_s`` seconds (less than 0: behind)."""
    replace_file(folder / _OFFSET, str(ahead_s))
