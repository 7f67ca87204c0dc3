"""Reads the trainers of a replay from a JSON file; every value is checked.

There is a typical trainer for users who do not describe their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.instance import Amount, Count, Size, in_words

_MAX_BYTES = 256 * 1024 * 1024
_MAX_TRAINERS = 1_000_000


class TrainersError(ValueError):
    """A file that does not list trainers; the message names file, trainer and key."""


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """One trainer: when it is submitted (Unix s), the nodes it can use, and its throughput.

    ``curve`` is in samples/s; the rescale costs are seconds without progress after growing or
    shrinking. A node trains ``start_s`` after it has joined. A step takes ``step_s``; there are
    ``checkpoint_s`` between two checkpoints. ``noise`` is its gradient noise scale in batches of
    one node; infinite: a sample counts the same on any number of nodes.
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
    noise: float = math.inf


class TrainerData(Struct, kw_only=True, forbid_unknown_fields=True):
    """A trainer in the file."""

    name: str
    submit_s: Amount = msgspec.field(name="submit")
    min_nodes: Size
    max_nodes: Size
    rescale_up_s: Amount
    rescale_down_s: Amount
    total_samples: Annotated[float, Meta(gt=0, le=1e100)]
    curve_nodes: tuple[Count, ...]
    curve_throughput: tuple[Amount, ...]
    start_s: Amount = 0.0
    step_s: Amount = 0.0
    checkpoint_s: Amount = 0.0
    noise: Annotated[float, Meta(gt=0, le=1e100)] | None = None  # in samples
    node_batch: Amount = 0.0  # of one node in a step; 0: the batch of all nodes is fixed
    curve_objective: tuple[float, ...] | None = None  # recorded; a replay has its own objective


_PLACES = {"[]": TrainerData}
_SPECS = frozenset(one.name for one in fields(TrainerSpec))
_Trainers: TypeAlias = Annotated[list[TrainerData], Meta(min_length=1, max_length=_MAX_TRAINERS)]


def read_trainers(path: Path) -> tuple[TrainerSpec, ...]:
    """Read the file: a list of objects with the keys of ``TrainerSpec``.

    The curve is ``curve_nodes`` and ``curve_throughput``. Keys with a default may be left out.

    Raises:
        TrainersError: in one line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise TrainersError(f"{path}: larger than {_MAX_BYTES // 2**20} MiB")
        entries = msgspec.json.decode(text, type=_Trainers)
    except OSError as error:
        raise TrainersError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TrainersError(f"{path}: {in_words(error, _PLACES)}") from error
    trainers = []
    for index, entry in enumerate(entries):
        try:
            trainers.append(_trainer_spec(entry))
        except ValueError as error:
            raise TrainersError(f"{path}: trainer {index}: {error}") from error
    return tuple(trainers)


def _trainer_spec(data: TrainerData) -> TrainerSpec:
    if not data.min_nodes <= data.max_nodes:
        raise ValueError("needs 1 <= min_nodes <= max_nodes")
    curve = ThroughputCurve(data.curve_nodes, data.curve_throughput)
    if curve.at(data.min_nodes) <= 0:
        raise ValueError("curve_throughput must be above 0 on min_nodes")
    others = {name: getattr(data, name) for name in data.__struct_fields__ if name in _SPECS}
    grows = data.noise is not None and data.node_batch > 0
    noise = (data.noise or 0.0) / data.node_batch if grows else math.inf
    return TrainerSpec(**others | {"name": data.name[:200], "noise": noise}, curve=curve)


_SERIAL = 0.01
_NODES = (1, 2, 4, 8, 16, 32, 64)
_ONE_NODE_SAMPLES_S = 1000.0
_NEVER_DONE = 1e15  # samples, more than any cluster trains in a year
DESCRIPTION = (
    "1 to 64 nodes; 1 % of each step does not scale (64 nodes are 39 times as fast as one); "
    "a new node trains after 3 s, the others pause for 0.2 s when a node joins or leaves; steps of "
    "1 s, and a checkpoint each 300 s, which matters if all its nodes are taken at once"
)


def typical_trainers(count: int) -> tuple[TrainerSpec, ...]:
    """Return ``count`` equal trainers that never end.

    A vision model with data parallelism: Amdahl's law with 1 % of a step serial (64 nodes give 39
    times one node's speed), up to 64 nodes. Its pauses are those of the project's own runtime with
    an unchanged script (docs/internals/measured.md). Its samples/s on one node cancel out of
    every figure.
    """
    speed = [_ONE_NODE_SAMPLES_S * n / (1 + _SERIAL * (n - 1)) for n in _NODES]
    curve = ThroughputCurve((0, *_NODES), (0.0, *speed))
    return tuple(
        TrainerSpec(
            name=f"typical-{number}",
            submit_s=0.0,
            min_nodes=1,
            max_nodes=_NODES[-1],
            rescale_up_s=0.2,
            rescale_down_s=0.2,
            total_samples=_NEVER_DONE,
            curve=curve,
            start_s=3.0,
            step_s=1.0,
            checkpoint_s=300.0,
        )
        for number in range(count)
    )
