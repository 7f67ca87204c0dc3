"""Snapshots and logs made up for tests: a trainer that trains on n1 and n2, and all is well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.chaos_suite.observe import Element, Process, Snapshot, Trainer
from scripts.chaos_suite.training import Generation, add_step, in_order

ARRAY = 12
NOW_S = 100.0


def steps(*lines: str) -> list[Generation]:
    """Return generations from lines of ``node.process time key number``."""
    made: dict[str, Generation] = {}
    for line in lines:
        where, time_s, key, number = line.split()
        add_step(made, where, float(time_s), key, 2, float(number))
    return in_order(made)


def element(task: int, node: str, state: str = "RUNNING", **other: Any) -> Element:
    return Element(
        **({"array": ARRAY, "task": str(task), "reason": "None"} | other), state=state, node=node
    )


def process(pid: int, task: int, node: str, life: str = "0") -> Process:
    return Process(pid, f"{node}.{pid}", "13", ARRAY, str(task), node, life)


def trainer(*nodes: str, stepped_s: float = NOW_S - 1) -> Trainer:
    lines = [f"{node}.{number} {stepped_s} a 10" for number, node in enumerate(nodes)]
    return Trainer(ARRAY, "digits", 3, steps(*lines))


def snapshot(**other: Any) -> Snapshot:
    """Return a snapshot in which all is well, but for what is given."""
    well: dict[str, Any] = {
        "time_s": NOW_S,
        "elements": (element(0, "n1"), element(1, "n2"), held(2)),
        "nodes": {"n1": "alloc", "n2": "alloc", "n3": "idle"},
        "status": status("n1", "n2"),
        "processes": (process(5, 0, "n1"), process(6, 1, "n2")),
        "trainers": (trainer("n1", "n2"),),
    }
    return Snapshot(**(well | other))


def held(task: int) -> Element:
    return element(task, "", "PENDING", reason="JobHeldUser")


def status(
    *nodes: str, trainers: Sequence[dict[str, Any]] = (), **controller: Any
) -> dict[str, Any]:
    mine = {"array": ARRAY, "nodes": list(nodes), "starting": [], "state": "running", "why": None}
    return {"age_s": 1.0, "controller": controller, "trainers": [mine, *trainers]}
