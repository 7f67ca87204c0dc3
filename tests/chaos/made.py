"""Snapshots and logs made up for tests: a trainer that trains on n1 and n2, and all is well."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.observe import Element, Process, Snapshot
from tests.chaos.trainers import Ask, Trainer
from tests.chaos.training import Training

ARRAY = 12
NOW_S = 100.0
# A generation that trains until 13 s, wherever the next one begins.
OLD = [f"n1.1 {time_s} a {number}" for number, time_s in enumerate((1, 2, 11, 12, 13))]


def trained(*lines: str) -> Training:
    """Return what has been trained, from lines of ``node.process time key number``."""
    made = Training(Path())
    for line in lines:
        where, time_s, key, number = line.split()
        made.add_step(where, float(time_s), key, 2, float(number))
    return made


def element(task: int, node: str, state: str = "RUNNING", **other: Any) -> Element:
    settings: dict[str, Any] = {"array": ARRAY, "task": str(task), "reason": "None"}
    return Element(**(settings | other), state=state, node=node)


def process(pid: int, task: int, node: str, life: str = "0") -> Process:
    return Process(pid, f"{node}.{pid}", ARRAY, str(task), node, life)


def trainer(*nodes: str, stepped_s: float = NOW_S - 1) -> Trainer:
    lines = [f"{node}.{number} {stepped_s} a 10" for number, node in enumerate(nodes)]
    return trainer_with(trained(*lines))


def trainer_with(training: Training) -> Trainer:
    return Trainer("digits", Ask("digits", max_nodes=3), Path(), training, ARRAY)


def snapshot(**other: Any) -> Snapshot:
    """Return a snapshot in which all is well, but for what is given."""
    well: dict[str, Any] = {
        "time_s": NOW_S,
        "elements": (element(0, "n1"), element(1, "n2"), HELD),
        "nodes": {"n1": "alloc", "n2": "alloc", "n3": "idle"},
        "status": status("n1", "n2"),
        "processes": (process(5, 0, "n1"), process(6, 1, "n2")),
        "trainers": (trainer("n1", "n2"),),
    }
    return Snapshot(**(well | other))


HELD = element(2, "", "PENDING", reason="JobHeldUser")


def status(*nodes: str, mine: Mapping[str, Any] | None = None, **controller: Any) -> dict[str, Any]:
    """Return what the controller publishes of itself and of the trainer, there ``mine`` too."""
    well = {"array": ARRAY, "nodes": list(nodes), "starting": [], "state": "running", "why": None}
    return {"age_s": 1.0, "controller": controller, "trainers": [well | dict(mine or {})]}
