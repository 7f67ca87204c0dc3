"""Reads one planning problem from a JSON file, as ``bftrainer plan`` takes it.

The format is that of the recorded planner instances; every value in it is checked.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import PlannedTrainer, Problem

MAX_BYTES = 64 * 1024 * 1024
MAX_NODES = 1_000_000
MAX_TRAINERS = 10_000
MAX_POINTS = 1_000  # of a curve
MAX_NUMBER = 1e15
_AMOUNTS = f"from 0 to {MAX_NUMBER:g}"


class InstanceError(ValueError):
    """A file that is not a planning problem; the message names file and key."""


def read_instance(path: Path) -> Problem:
    """Read the file; node k of the cluster is called ``nK``.

    ``current_map`` has a text of 0 and 1 per trainer, a character per node; where it is absent,
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
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InstanceError(f"{path}: not JSON: {error}") from error
    try:
        return _problem(document)
    except ValueError as error:
        raise InstanceError(f"{path}: {error}") from error


def _problem(document: Any) -> Problem:
    nodes = _whole(document, "nodes", 0, MAX_NODES)
    names = [f"n{number}" for number in range(nodes)]
    trainers = _list(document, "trainers")
    if len(trainers) > MAX_TRAINERS:
        raise ValueError(f"trainers must be at most {MAX_TRAINERS}, not {len(trainers)}")
    held = _held(document, names, trainers)
    planned = tuple(
        _in_trainer(index, trainer, held[index]) for index, trainer in enumerate(trainers)
    )
    forward_time_s = _number(document, "forward_time_s")
    return Problem(frozenset(names), forward_time_s, planned)


def _in_trainer(index: int, trainer: Any, held: frozenset[str]) -> PlannedTrainer:
    try:
        least = _whole(trainer, "min_nodes", 1, MAX_NODES)
        return PlannedTrainer(
            key=str(index),
            min_nodes=least,
            max_nodes=_whole(trainer, "max_nodes", least, MAX_NODES),
            current=held,
            curve=_curve(trainer),
            rescale_up_s=_number(trainer, "rescale_up_s"),
            rescale_down_s=_number(trainer, "rescale_down_s"),
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
