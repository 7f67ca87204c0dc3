"""The live view: which node does what, a line every few seconds, or a line that is redrawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

_EVERY_S = 3.0


@dataclass
class LiveView:
    """One character a node: # for an ordinary job, a trainer's letter (small: starting), . idle."""

    nodes: Sequence[str]
    letters: dict[int, str]
    out: TextIO = sys.stderr
    _last_s: float = field(default=float("-inf"))

    def due(self, now_s: float) -> bool:
        """Whether it is time for the next line: what it takes is asked of Slurm."""
        return now_s - self._last_s >= _EVERY_S

    def show(self, now_s: float, busy: set[str], waiting: int, status: dict[str, Any]) -> None:
        """Draw the state at second ``now_s`` of the stream."""
        self._last_s = now_s
        places: dict[str, str] = {}
        for trainer in status.get("trainers", ()):
            letter = self.letters.get(trainer["array"], "?")
            places |= dict.fromkeys(trainer["starting"], letter.lower())
            places |= dict.fromkeys(trainer["nodes"], letter)
        cells = "".join(places.get(node, "#" if node in busy else ".") for node in self.nodes)
        line = f"{now_s:5.0f} s  [{cells}]  {waiting} waiting  {self._trainers(status)}"
        self.out.write(f"\r\x1b[K{line}" if self.out.isatty() else f"{line}\n")
        self.out.flush()

    def end(self) -> None:
        """Leave the redrawn line."""
        if self.out.isatty():
            self.out.write("\n")

    def _trainers(self, status: dict[str, Any]) -> str:
        parts = []
        for trainer in status.get("trainers", ()):
            letter = self.letters.get(trainer["array"], "?")
            rate = trainer["samples_per_s"]
            parts.append(
                f"{letter}: {len(trainer['nodes'])} nodes, "
                + (f"{trainer['samples']:,.0f} samples" if trainer["samples"] else "starting")
                + (f", {rate:,.0f}/s" if rate else "")
            )
        return "  ".join(parts)
