"""Reading the step logs of a fleet's nodes while they are written. No torch here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One step that a training process completed."""

    time_s: float  # CLOCK_MONOTONIC: one clock for all nodes, as they are all on one host
    step: int
    world: int
    weights: int  # a sum over all bits of the weights after it


class StepLogs:
    """All steps so far of each node, in order of time; ``read`` takes in what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_to: dict[Path, int] = {}
        self._steps: dict[str, list[Step]] = defaultdict(list)

    def read(self) -> None:
        """Take in all lines written since the last call; half a line waits for its rest."""
        for path in self._folder.glob("*.log"):
            with path.open("rb") as file:
                file.seek(self._read_to.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if not whole:
                continue
            self._read_to[path] = self._read_to.get(path, 0) + len(whole)
            steps = self._steps[path.name.partition(".")[0]]
            steps += parse(whole.decode().splitlines())
            if len(steps) > 1:
                steps.sort(key=lambda one: one.time_s)

    def of(self, node: str) -> list[Step]:
        """Return the steps that a node's processes completed, none if it made none yet."""
        return self._steps[node]

    def copy_s(self, node: str) -> float | None:
        """Return how long a node took to get the state from others' memory; None: it did not."""
        path = self._folder / f"{node}.copy"
        return float(path.read_text()) if path.exists() else None

    @property
    def all(self) -> dict[str, list[Step]]:
        """The steps of every node that ever was."""
        return dict(self._steps)


def parse(lines: Iterable[str]) -> list[Step]:
    """Read lines of ``StepLog``."""
    steps = []
    for line in lines:
        time_s, step, world, weights = line.split()
        steps.append(Step(float(time_s), int(step), int(world), int(weights)))
    return steps
