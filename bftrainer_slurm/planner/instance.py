"""One planning problem as JSON, as ``bftrainer plan`` takes it, and how one is written.

The format is that of the recorded planner instances, with optional keys for what those do not have:
names, classes, expected ends, pauses. Every value that is read is checked.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlannedTrainer, Problem

MAX_BYTES = 64 * 1024 * 1024
MAX_NODES = 1_000_000
MAX_TRAINERS = 10_000
MAX_POINTS = 1_000  # of a curve
MAX_CLASSES = 1_000
MAX_NUMBER = 1e15
MAX_NAME = 255  # characters
_AMOUNTS = f"from 0 to {MAX_NUMBER:g}"


class InstanceError(ValueError):
    """A file that is not a planning problem; the message names file and key."""


def read_instance(path: Path) -> Problem:
    """Read the file; node k of the cluster is called ``nK`` unless ``node_names`` says otherwise.

    ``node_trainer`` has for each node the place of the trainer that has it, -1 for nobody.
    ``current_map`` has a text of 0 and 1 per trainer, a character per node; where both are absent,
    trainers hold the first nodes, as many as their ``current_nodes``.

    Raises:
        InstanceError: in one line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)  # no more of it, whatever its size claims to be
    except OSError as error:
        raise InstanceError(f"{path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise InstanceError(f"{path}: larger than {MAX_BYTES // 2**20} MiB")
    try:
        return parse(text)
    except ValueError as error:
        raise InstanceError(f"{path}: {error}") from error


def parse(text: bytes) -> Problem:
    """Return the problem that this JSON says. Raises ValueError in one line, with the key."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    return _problem(document)


def document_of(problem: Problem) -> dict[str, Any]:
    """Return a problem as it is read."""
    names = sorted(problem.pool)
    has = {node: place for place, one in enumerate(problem.trainers) for node in one.current}
    part = {node: place for place, one in enumerate(problem.classes) for node in one.nodes}
    life_s = (problem.life_s.get(name, math.inf) for name in names)
    document: dict[str, Any] = {
        "forward_time_s": problem.forward_time_s,
        "costs": problem.costs.value,
        "nodes": len(names),
        "node_names": names,
        "node_trainer": [has.get(name, -1) for name in names],
        "node_life_s": [None if math.isinf(one) else one for one in life_s],
        "trainers": [_document_of(one) for one in problem.trainers],
    }
    if problem.classes:
        document["classes"] = [
            {"name": one.name, "hardware": one.hardware} for one in problem.classes
        ]
        document["node_class"] = [part[name] for name in names]
    return document


def _document_of(trainer: PlannedTrainer) -> dict[str, Any]:
    return {
        "name": trainer.key,
        "min_nodes": trainer.min_nodes,
        "max_nodes": trainer.max_nodes,
        "curve_nodes": trainer.curve.nodes,
        "curve_objective": trainer.curve.values,
        "rescale_up_s": trainer.rescale_up_s,
        "rescale_down_s": trainer.rescale_down_s,
        "paused_s": trainer.paused_s,
        "start_cost": trainer.start_cost,
        "barred": sorted(trainer.barred),
    }


def _problem(document: Any) -> Problem:
    nodes = _whole(document, "nodes", 0, MAX_NODES)
    names = [f"n{number}" for number in range(nodes)]
    if "node_names" in document:
        names = _names(document, "node_names", nodes)
    trainers = _list(document, "trainers")
    if len(trainers) > MAX_TRAINERS:
        raise ValueError(f"trainers must be at most {MAX_TRAINERS}, not {len(trainers)}")
    held = _held(document, names, trainers)
    planned = tuple(
        _in_trainer(index, trainer, held[index]) for index, trainer in enumerate(trainers)
    )
    costs = document.get("costs", Costs.PAPER.value)
    if costs not in [one.value for one in Costs]:
        raise ValueError(f"costs must be {' or '.join(one.value for one in Costs)}")
    return Problem(
        pool=frozenset(names),
        forward_time_s=_number(document, "forward_time_s"),
        trainers=planned,
        costs=Costs(costs),
        life_s=_lives(document, names),
        classes=_classes(document, names),
    )


def _lives(document: Any, names: list[str]) -> Mapping[str, float]:
    if "node_life_s" not in document:
        return {}
    lives = _list(document, "node_life_s")
    if len(lives) != len(names) or not all(one is None or _is_amount(one) for one in lives):
        raise ValueError(f"node_life_s must have a number {_AMOUNTS}, or null, for each node")
    return {name: one for name, one in zip(names, lives, strict=True) if one is not None}


def _classes(document: Any, names: list[str]) -> tuple[NodeClass, ...]:
    if "classes" not in document:
        return ()
    classes = _list(document, "classes")
    if not 1 <= len(classes) <= MAX_CLASSES:
        raise ValueError(f"classes must be 1 to {MAX_CLASSES}")
    parts: list[set[str]] = [set() for _ in classes]
    for name, place in zip(names, _places(document, "node_class", names, classes, 0), strict=True):
        parts[place].add(name)
    return tuple(
        NodeClass(_text(one, "name"), frozenset(part), _text(one, "hardware", empty=True))
        for one, part in zip(classes, parts, strict=True)
    )


def _places(document: Any, key: str, names: list[str], among: list[Any], least: int) -> list[int]:
    """Read a place in a list for each node."""
    places = _list(document, key)
    if len(places) != len(names) or not all(
        type(place) is int and least <= place < len(among) for place in places
    ):
        raise ValueError(f"{key} must have a whole number from {least} to {len(among) - 1} a node")
    return places


def _in_trainer(index: int, trainer: Any, held: frozenset[str]) -> PlannedTrainer:
    try:
        least = _whole(trainer, "min_nodes", 1, MAX_NODES)
        return PlannedTrainer(
            key=_text(trainer, "name") if "name" in trainer else str(index),
            min_nodes=least,
            max_nodes=_whole(trainer, "max_nodes", least, MAX_NODES),
            current=held,
            curve=_curve(trainer),
            rescale_up_s=_number(trainer, "rescale_up_s"),
            rescale_down_s=_number(trainer, "rescale_down_s"),
            paused_s=_number(trainer, "paused_s") if "paused_s" in trainer else 0.0,
            start_cost=_number(trainer, "start_cost") if "start_cost" in trainer else 0.0,
            barred=frozenset(_names(trainer, "barred") if "barred" in trainer else ()),
        )
    except ValueError as error:
        raise ValueError(f"trainers[{index}]: {error}") from error


def _curve(trainer: Any) -> ThroughputCurve:
    nodes, values = _list(trainer, "curve_nodes"), _list(trainer, "curve_objective")
    if len(nodes) > MAX_POINTS:
        raise ValueError(f"curve_nodes must have at most {MAX_POINTS} points")
    if len(nodes) != len(values):
        raise ValueError("curve_objective must have as many values as curve_nodes")
    if not all(type(count) is int and 0 <= count <= MAX_NODES for count in nodes):
        raise ValueError(f"curve_nodes must be whole numbers from 0 to {MAX_NODES}")
    if nodes[:1] != [0] or any(a >= b for a, b in itertools.pairwise(nodes)):
        raise ValueError("curve_nodes must start with 0 and ascend")
    if not all(_is_amount(one) for one in values):
        raise ValueError(f"curve_objective must be numbers {_AMOUNTS}")
    if values[0] != 0:
        raise ValueError("curve_objective must start with 0, which is what no node brings")
    return ThroughputCurve(tuple(nodes), tuple(float(one) for one in values))


def _held(document: Any, names: list[str], trainers: list[Any]) -> list[frozenset[str]]:
    if "node_trainer" in document:
        taken: list[set[str]] = [set() for _ in trainers]
        places = _places(document, "node_trainer", names, trainers, -1)
        for name, place in zip(names, places, strict=True):
            if place >= 0:
                taken[place].add(name)
        return [frozenset(nodes) for nodes in taken]
    if "current_map" not in document:
        free = iter(names)
        counts = [_whole(trainer, "current_nodes", 0, len(names)) for trainer in trainers]
        if sum(counts) > len(names):
            raise ValueError(
                f"current_nodes of all trainers must be at most nodes, {len(names)}, together"
            )
        return [frozenset(next(free) for _ in range(count)) for count in counts]
    rows = _list(document, "current_map")
    if len(rows) != len(trainers) or not all(_is_row(row, len(names)) for row in rows):
        raise ValueError(
            f"current_map must have a row for each of the {len(trainers)} trainers: "
            f"a text with a 0 or 1 for each of the {len(names)} nodes"
        )
    held = [
        frozenset(name for name, here in zip(names, row, strict=True) if here == "1")
        for row in rows
    ]
    if sum(map(len, held)) != len(frozenset().union(*held)):
        raise ValueError("current_map must give a node to one trainer at most")
    return held


def _is_row(row: object, length: int) -> bool:
    return isinstance(row, str) and len(row) == length and set(row) <= {"0", "1"}


def _get(holder: Any, key: str) -> Any:
    if not isinstance(holder, dict):
        raise ValueError(f"must be an object with the key {key}")
    if key not in holder:
        raise ValueError(f"{key} is missing")
    return holder[key]


def _whole(holder: Any, key: str, least: int, most: int) -> int:
    number = _get(holder, key)
    if type(number) is not int or not least <= number <= most:
        raise ValueError(f"{key} must be a whole number from {least} to {most}")
    return number


def _number(holder: Any, key: str) -> float:
    number = _get(holder, key)
    if not _is_amount(number):
        raise ValueError(f"{key} must be a number {_AMOUNTS}")
    return float(number)


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_NUMBER


def _list(holder: Any, key: str) -> list[Any]:
    found = _get(holder, key)
    if not isinstance(found, list):
        raise ValueError(f"{key} must be a list")
    return found


def _names(holder: Any, key: str, count: int | None = None) -> list[str]:
    found = _list(holder, key)
    if not all(_is_name(one) for one in found) or len(set(found)) != len(found):
        raise ValueError(f"{key} must be different names, of at most {MAX_NAME} characters")
    if count is not None and len(found) != count:
        raise ValueError(f"{key} must be {count} names")
    return found


def _text(holder: Any, key: str, empty: bool = False) -> str:
    text = _get(holder, key)
    if not (_is_name(text) or (empty and text == "")):
        raise ValueError(f"{key} must be a name, of at most {MAX_NAME} characters")
    return str(text)


def _is_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME and text.isprintable()
