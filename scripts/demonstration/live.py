"""The live view: which node does what, a line every few seconds, or a line that is redrawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_EVERY_S = 3.0


@dataclass
class LiveView:
    """One character a node: # for an ordinary job, a trainer's letter (small: starting), . idle."""

    nodes: Sequence[str]
    letters: dict[int, str]
    _last_s: float = float("-inf")

    def due(self, now_s: float) -> bool:
        """Whether it is time for the next line: what it takes is asked of Slurm."""
        return now_s - self._last_s >= _EVERY_S

    def show(self, now_s: float, busy: set[str], waiting: int, status: dict[str, Any]) -> None:
        """Draw the state at second ``now_s`` of the stream."""
        self._last_s = now_s
        places: dict[str, str] = {}
        words = []
        for trainer in status.get("trainers", ()):
            letter, rate = self.letters.get(trainer["array"], "?"), trainer["samples_per_s"]
            places |= dict.fromkeys(trainer["starting"], letter.lower())
            places |= dict.fromkeys(trainer["nodes"], letter)
            far = f"{trainer['samples']:,.0f} samples" if trainer["samples"] else "starting"
            words.append(f"{letter}: {len(trainer['nodes'])} nodes, {far}")
            words[-1] += f", {rate:,.0f}/s" if rate else ""
        cells = "".join(places.get(node, "#" if node in busy else ".") for node in self.nodes)
        line = f"{now_s:5.0f} s  [{cells}]  {waiting} waiting  {'  '.join(words)}"
        redraws = sys.stderr.isatty()
        text, end = (f"\r\x1b[K{line}", "") if redraws else (line, "\n")
        print(text, end=end, file=sys.stderr, flush=True)
