"""Reads the step logs of a fleet's nodes while they are written. No torch here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from scripts.benchkit.logs import Tail


@dataclass(frozen=True, slots=True)
class Step:
    """One step that a training process completed."""

    time_s: float  # CLOCK_MONOTONIC: one clock for all nodes, as they are all on one host
    step: int
    world: int
    weights: int  # a sum over all bits of the weights after it


class StepLogs:
    """All steps of each node so far, in order of time; ``read`` reads new ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tail = Tail(folder, "*.log")
        self._steps: dict[str, list[Step]] = defaultdict(list)

    def read(self) -> None:
        """Read all lines of ``StepLog`` that were written since the last call."""
        for path, lines in self._tail.read():
            steps = self._steps[path.name.partition(".")[0]]
            for time_s, *numbers in map(str.split, lines):
                steps.append(Step(float(time_s), *map(int, numbers)))
            steps.sort(key=lambda one: one.time_s)

    def of(self, node: str) -> list[Step]:
        """Return the steps that a node's processes completed, in order of time."""
        return self._steps[node]

    def copy_s(self, node: str) -> float | None:
        """Return how long a node took to get the state from others' memory; None: it did not."""
        path = self._folder / f"{node}.copy"
        return float(path.read_text()) if path.exists() else None

    @property
    def all(self) -> dict[str, list[Step]]:
        """The steps of all nodes, including those that are gone."""
        return dict(self._steps)
