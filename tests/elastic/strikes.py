"""What happens to a process at a chosen point of a step: it finds it in a file."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.elastic import fakenccl

HAPPENS = ("kill", "freeze", "leave", "join")
HANGS = ("hang", "hang with the GIL")
_SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "leave": signal.SIGTERM}


@dataclass(frozen=True)
class Strike:
    """What happens where to which of the present nodes, when it comes there for the nth time."""

    kind: str
    point: str
    nth: int
    victim: int

    def arm(self, folder: Path, task: int) -> None:
        new = folder / "strike.new"
        new.write_text(f"{self.nth} {self.point} {self.kind}")
        new.rename(folder / f"strike.n{task}")


def has_struck(folder: Path, task: int) -> bool:
    return (folder / f"struck.n{task}").exists()


class Struck:
    """A process's own; ``join`` and all others first leave a file behind."""

    def __init__(self, folder: Path) -> None:
        node = os.environ.get("SLURMD_NODENAME", "here")
        self._armed = folder / f"strike.{node}"
        self._struck = folder / f"struck.{node}"
        self._left, self._point, self._kind = 0, "", ""

    def reach(self, point: str) -> None:
        """Come to a point."""
        with suppress(FileNotFoundError):
            number, self._point, self._kind = self._armed.read_text().split(maxsplit=2)
            self._left = int(number)
            self._armed.unlink()
        if point != self._point or not self._left:
            return
        self._left -= 1
        if self._left:
            return
        self._struck.touch()
        if self._kind in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[self._kind])
        elif self._kind.startswith("hang"):
            fakenccl.hang(with_gil=self._kind != "hang")
