"""One training on a fleet of this host: its changes come, and its records are read."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from scripts.elastic_bench.fleet import ARRAY, SETUPS, Fleet, Node
from scripts.exactly_once.account import Step, in_the_model
from scripts.exactly_once.programs.recording import SLOW
from scripts.exactly_once.ways import PLANNED, Change, Way
from scripts.labcluster.lab import Tell

PATIENCE_S = 600.0
_PROGRAMS = Path(__file__).with_name("programs")
_SETTLED = 2  # steps of all nodes before the next change


class StuckError(Exception):
    """A training does not go on; the message has an agent's last lines."""


@dataclass(frozen=True, slots=True)
class Size:
    """What is trained: samples of some epochs, a rank's batch, and a step's seconds."""

    samples: int
    epochs: int
    batch: int
    save_every: int  # steps
    compute_s: float

    @property
    def steps(self) -> int:
        """Steps of one node."""
        return self.samples * self.epochs // self.batch


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
        super().__init__(SETUPS["handler"])
        self._way, self._size = way, size
        self.record = self._folder / "record"
        self.output = self._folder / "output"

    def __enter__(self) -> _Programs:
        super().__enter__()
        self.output.mkdir()
        self.record.mkdir()
        return self

    def _script(self) -> list[str]:
        size, way = self._size, self._way
        options = {"folder": self.output, "record": self.record, "samples": size.samples}
        options |= {"epochs": size.epochs, "batch": size.batch, "compute": size.compute_s}
        options |= {"save-every": size.save_every}
        words = [f"--{name}={value}" for name, value in options.items()]
        words += [word.replace("STEPS", str(size.steps // 2)) for word in way.options]
        return [str(_PROGRAMS / f"{way.program}.py"), *words]

    def leave(self, node: Node) -> None:
        """Let a node leave as the controller does: when it has left at a step boundary."""
        self.wait(lambda: self._keeper.part(ARRAY, [node.task]), PATIENCE_S)
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
        found = {}
        for path in self.record.glob("*.jsonl"):
            whole = path.read_text().rpartition("\n")[0].splitlines()
            found[path.name] = [json.loads(line) for line in whole]
        return found

    def keep(self, folder: Path) -> None:
        """Copy the records and what the nodes have printed."""
        shutil.copytree(self.record, folder, dirs_exist_ok=True)
        for path in self._folder.glob("*.out"):
            shutil.copy(path, folder)

    def said(self) -> list[str]:
        """Return our own lines in all nodes' output, each once."""
        texts = [path.read_text(errors="replace") for path in sorted(self._folder.glob("*.out"))]
        lines = [line for text in texts for line in text.splitlines() if "bftrainer" in line]
        return list(dict.fromkeys(lines))


def train(
    way: Way, size: Size, changes: Sequence[Change], tell: Tell, kept: Path | None = None
) -> Trained:
    """Train on one node, and let the changes come; ``kept``: a folder for what is written.

    Raises:
        StuckError: it does not go on.
    """
    done = []
    with _Programs(way, size) as fleet, _keeping(fleet, kept):
        fleet.start()
        for change in changes:
            due = change.at * size.samples * size.epochs
            _wait(fleet, partial(_is_due, fleet, due))
            if _over(fleet):
                break
            tell(f"{change.kind} at {_progress(fleet):,} samples")
            slow = fleet.record / SLOW
            slow.touch()
            done.append((time.monotonic(), change.kind))
            _let(fleet, change.kind)
            _wait(fleet, lambda: _together(fleet))
            slow.unlink()
        _wait(fleet, lambda: _over(fleet))
        records, said = fleet.records(), fleet.said()
    steps, thrown_away = in_the_model(records)
    losses = [line["loss"] for lines in records.values() for line in lines if "loss" in line]
    return Trained(steps, thrown_away, losses[-1] if losses else None, said, done)


@contextmanager
def _keeping(fleet: _Programs, folder: Path | None) -> Iterator[None]:
    try:
        yield
    finally:
        if folder is not None:
            fleet.keep(folder)


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
    if _over(fleet):
        return True
    last = _last_steps(fleet.records())
    worlds = [last.get(node.job, []) for node in fleet.nodes]
    return all(one == [len(fleet.nodes)] * _SETTLED for one in worlds)


def _last_steps(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[int]]:
    """Return the sizes of the world in each job's last steps."""
    of_job: dict[str, list[Mapping[str, Any]]] = {}
    for name, lines in records.items():
        steps = [line for line in lines if "step" in line]
        of_job.setdefault(name.partition(".")[0], []).extend(steps)
    ordered = {job: sorted(lines, key=lambda one: one["time_s"]) for job, lines in of_job.items()}
    return {job: [line["world"] for line in lines[-_SETTLED:]] for job, lines in ordered.items()}


def _over(fleet: _Programs) -> bool:
    return all(node.ended() for node in fleet.nodes)


def _wait(fleet: _Programs, condition: Callable[[], bool]) -> None:
    def at_last() -> bool:
        return bool(condition()) or any(node.agent.poll() not in (None, 0) for node in fleet.nodes)

    in_time = fleet.wait(at_last, PATIENCE_S)
    failed = next((node for node in fleet.nodes if node.agent.poll() not in (None, 0)), None)
    if failed is not None or not in_time:
        node = failed or fleet.nodes[0]
        raise StuckError(f"an agent says: {fleet.messages(node)}")
