"""The trainers of a replay, as a JSON file lists them; every value in it is checked."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.model import ThroughputCurve

_MAX_BYTES = 256 * 1024 * 1024
_MAX_TRAINERS = 1_000_000
_MAX_NODES = 1_000_000
_MAY_BE_LEFT_OUT = ("start_s", "step_s", "checkpoint_s")


class TrainersError(ValueError):
    """A file that does not list trainers; the message names file, trainer and key."""


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """One trainer: when it is submitted (Unix s), what it can use, and what it brings.

    ``curve`` is its throughput in samples/s; the rescale costs are seconds without progress after
    it grew or shrank. A node trains ``start_s`` after it has joined; a step takes ``step_s``, and
    ``checkpoint_s`` pass between two checkpoints.
    """

    name: str
    submit_s: float
    min_nodes: int
    max_nodes: int
    rescale_up_s: float
    rescale_down_s: float
    total_samples: float
    curve: ThroughputCurve
    start_s: float = 0.0
    step_s: float = 0.0
    checkpoint_s: float = 0.0


def read_trainers(path: Path) -> tuple[TrainerSpec, ...]:
    """Read the file: a list of objects with the keys of ``TrainerSpec``.

    The curve is ``curve_nodes`` and ``curve_throughput``; what has a default may be left out. Other
    keys are left alone: a recorded ``curve_objective`` too, since the replay's own objective says
    what is planned for.

    Raises:
        TrainersError: in one line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise TrainersError(f"{path}: larger than {_MAX_BYTES // 2**20} MiB")
        document = json.loads(text)
    except OSError as error:
        raise TrainersError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, TrainersError):
            raise
        raise TrainersError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, list) or not 0 < len(document) <= _MAX_TRAINERS:
        raise TrainersError(f"{path}: must be a list of 1 to {_MAX_TRAINERS} trainers")
    trainers = []
    for index, entry in enumerate(document):
        try:
            trainers.append(_trainer(entry))
        except (ValueError, TypeError) as error:
            raise TrainersError(f"{path}: trainer {index}: {error}") from error
    return tuple(trainers)


def _trainer(entry: Any) -> TrainerSpec:
    if not isinstance(entry, dict):
        raise ValueError("must be an object")
    nodes = _get(entry, "curve_nodes")
    least = _whole(entry, "min_nodes")
    most = _whole(entry, "max_nodes")
    if not 1 <= least <= most:
        raise ValueError("needs 1 <= min_nodes <= max_nodes")
    curve = _curve(nodes, entry, "curve_throughput")
    if curve.at(least) <= 0:
        raise ValueError("curve_throughput must be above 0 on min_nodes")
    total = _amount(entry, "total_samples")
    if total <= 0:
        raise ValueError("total_samples must be above 0")
    return TrainerSpec(
        name=str(_get(entry, "name"))[:200],
        submit_s=_amount(entry, "submit"),
        min_nodes=least,
        max_nodes=most,
        rescale_up_s=_amount(entry, "rescale_up_s"),
        rescale_down_s=_amount(entry, "rescale_down_s"),
        total_samples=total,
        curve=curve,
        **{name: _amount(entry, name) for name in _MAY_BE_LEFT_OUT if name in entry},
    )


def _curve(nodes: Any, entry: dict[str, Any], key: str) -> ThroughputCurve:
    values = _get(entry, key)
    for name, numbers in (("curve_nodes", nodes), (key, values)):
        if not isinstance(numbers, list) or not all(map(_is_amount, numbers)):
            raise ValueError(f"{name} must be a list of numbers from 0")
    if not all(type(count) is int and count <= _MAX_NODES for count in nodes):
        raise ValueError(f"curve_nodes must be whole numbers up to {_MAX_NODES}")
    return ThroughputCurve(tuple(nodes), tuple(map(float, values)))


def _get(entry: dict[str, Any], key: str) -> Any:
    if key not in entry:
        raise ValueError(f"{key} is missing")
    return entry[key]


def _whole(entry: dict[str, Any], key: str) -> int:
    number = _get(entry, key)
    if type(number) is not int or number > _MAX_NODES:
        raise ValueError(f"{key} must be a whole number up to {_MAX_NODES}")
    return int(number)


def _amount(entry: dict[str, Any], key: str) -> float:
    number = _get(entry, key)
    if not _is_amount(number):
        raise ValueError(f"{key} must be a number from 0")
    return float(number)


def _is_amount(number: Any) -> bool:
    return type(number) in (int, float) and 0 <= number <= sys.float_info.max
