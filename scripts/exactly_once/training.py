"""One training on a fleet of this host: its changes come, and its records are read."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from scripts.benchkit.logs import Tail
from scripts.elastic_bench.fleet import ARRAY, OURS, Fleet, Node
from scripts.exactly_once.account import Step, in_the_model
from scripts.exactly_once.programs.recording import SLOW
from scripts.exactly_once.ways import BATCH, PLANNED, Change, Way
from scripts.labcluster.lab import Tell
from scripts.labcluster.waiting import wait_until

PATIENCE_S = 600.0
_PROGRAMS = Path(__file__).with_name("programs")
_SETTLED = 2  # steps of all nodes before the next change


@dataclass(frozen=True, slots=True)
class Size:
    """What is trained: samples of some epochs."""

    samples: int
    epochs: int

    @property
    def steps(self) -> int:
        """Steps of one node."""
        return self.samples * self.epochs // BATCH


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training has written down."""

    steps: list[Step]
    thrown_away: dict[float, int]  # samples, by when it trained on
    loss: float | None
    said: list[str]  # our lines in the log, each once
    changes: list[tuple[float, str]]  # when (time.monotonic()) and what

    @property
    def planned(self) -> list[tuple[float, float]]:
        """When each planned change came, and when the next change of any kind."""
        pairs = pairwise([*self.changes, (math.inf, "")])
        return [(time_s, end_s) for (time_s, kind), (end_s, _) in pairs if kind in PLANNED]


class _Programs(Fleet):
    """A fleet whose nodes run one of the programs."""

    def __init__(self, way: Way, size: Size) -> None:
        super().__init__(OURS)
        self._way, self._size = way, size
        self.record = self._folder / "record"
        self.output = self._folder / "output"
        self._lines = Tail(self.record, "*.jsonl")
        self._records: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def __enter__(self) -> _Programs:
        super().__enter__()
        self.output.mkdir()
        self.record.mkdir()
        return self

    def _script(self) -> list[str]:
        size, way = self._size, self._way
        options = {"folder": self.output, "record": self.record, "samples": size.samples}
        options |= {"epochs": size.epochs, "batch": BATCH}
        program, *own = way.words.replace("STEPS", str(size.steps // 2)).split()
        words = [f"--{name}={value}" for name, value in options.items()]
        return [str(_PROGRAMS / f"{program}.py"), *words, *own]

    def leave(self, node: Node) -> None:
        """Let a node leave as the controller does: when it has left at a step boundary."""
        wait_until(lambda: self._keeper.part(ARRAY, [node.task]), PATIENCE_S)
        self.reclaim(node)

    def give_back(self, count: int) -> None:
        """Reclaim all nodes, and start others when these are gone."""
        for node in list(self.nodes):
            self.reclaim(node)
        for end in self._ends:
            end.join()
        self.start(count)

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Return the whole lines of each process so far."""
        for path, lines in self._lines.read():
            self._records[path.name] += map(json.loads, lines)
        return self._records

    def said(self) -> list[str]:
        """Return our own lines in all nodes' output, each once."""
        texts = [path.read_text(errors="replace") for path in sorted(self._folder.glob("*.out"))]
        lines = [line for text in texts for line in text.splitlines() if "bftrainer" in line]
        return list(dict.fromkeys(lines))


def train(way: Way, size: Size, changes: Sequence[Change], tell: Tell) -> Trained:
    """Train on one node, and let the changes come.

    Raises:
        StuckError: it does not go on.
    """
    done = []
    with _Programs(way, size) as fleet:
        fleet.start()
        for change in changes:
            due = change.at * size.samples * size.epochs
            fleet.wait(partial(_is_due, fleet, due), PATIENCE_S)
            if _over(fleet):
                break
            tell(f"{change.kind} at {_progress(fleet):,} samples")
            slow = fleet.record / SLOW
            slow.touch()
            done.append((time.monotonic(), change.kind))
            _let(fleet, change.kind)
            fleet.wait(lambda: _together(fleet), PATIENCE_S)
            slow.unlink()
        fleet.wait(lambda: _over(fleet), PATIENCE_S)
        records, said = fleet.records(), fleet.said()
    steps, thrown_away = in_the_model(records)
    losses = [line["loss"] for lines in records.values() for line in lines if "loss" in line]
    return Trained(steps, thrown_away, losses[-1] if losses else None, said, done)


def _let(fleet: _Programs, kind: str) -> None:
    """Let a change happen; the node that goes is the oldest one, which is rank 0."""
    match kind:
        case "join":
            fleet.start()
        case "leave":
            fleet.leave(fleet.nodes[0])
        case "reclaim":
            fleet.reclaim(fleet.nodes[0])
        case "kill":
            fleet.kill(fleet.nodes[0])
        case "zero":
            fleet.give_back(2)


def _is_due(fleet: _Programs, samples: float) -> bool:
    return _progress(fleet) >= samples or _over(fleet)


def _progress(fleet: _Programs) -> int:
    """Return how many samples are in the model now."""
    steps, _ = in_the_model(fleet.records())
    return sum(len(step.numbers) for step in steps)


def _together(fleet: _Programs) -> bool:
    """Return whether all nodes have made their last steps together, or the training is over."""
    worlds: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for name, lines in fleet.records().items():
        steps = [(line["time_s"], line["world"]) for line in lines if "step" in line]
        worlds[name.partition(".")[0]] += steps
    last = ([world for _, world in sorted(worlds[one.job])[-_SETTLED:]] for one in fleet.nodes)
    return _over(fleet) or all(one == [len(fleet.nodes)] * _SETTLED for one in last)


def _over(fleet: _Programs) -> bool:
    return all(node.ended() for node in fleet.nodes)
