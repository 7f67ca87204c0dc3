"""One planning problem as JSON: in ``bftrainer plan``'s files, the history, and to the child.

The format is that of the recorded planner instances, with optional keys for more: names, classes,
expected ends, pauses. msgspec checks every value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlannedTrainer, Problem, Share

MAX_BYTES = 64 * 1024 * 1024
MAX_NODES = 1_000_000
MAX_TRAINERS = 10_000
MAX_GPUS = 1_000  # of a node
MAX_POINTS = 1_000  # of a curve
MAX_CLASSES = 1_000
MAX_SIZES = 100_000  # of a trainer: more than a job array has tasks

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_NODES)]
Size: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_NODES)]
Place: TypeAlias = Annotated[int, Meta(ge=-1, le=MAX_NODES)]
Gpus: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_GPUS)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1e100)]  # a sum of products of two is finite
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Fact = TypeVar("Fact", int, float, str)  # of a node

_UNKNOWN = re.compile("Object contains unknown field `(.*)`")
_MISSING = re.compile("Object missing required field `(.*)`")

# A trainer's fields that have the same name in a file and in the planner.
_ALIKE = (
    *("min_nodes", "max_nodes", "sizes", "gpus"),
    *("rescale_up_s", "rescale_down_s", "paused_s", "start_cost", "loss_s"),
)


class InstanceError(ValueError):
    """A file that is not a planning problem; the message names file and key."""


class TrainerData(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A trainer; without a name, its place is its name."""

    name: Name | None = None
    min_nodes: Size
    max_nodes: Size
    current_nodes: Count | None = None
    held: Annotated[tuple[Count, ...], Meta(max_length=MAX_NODES)] | None = None
    curve_nodes: Annotated[tuple[Count, ...], Meta(max_length=MAX_POINTS)]
    curve_objective: tuple[Amount, ...]
    rescale_up_s: Amount
    rescale_down_s: Amount
    paused_s: Amount = 0.0
    start_cost: Amount = 0.0
    loss_s: Amount = 0.0
    barred: tuple[Name, ...] = ()
    sizes: Annotated[tuple[Size, ...], Meta(max_length=MAX_SIZES)] = ()
    gpus: Gpus = 0


class ClassData(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A class of nodes."""

    name: Name
    hardware: Annotated[str, Meta(max_length=255)] = ""
    gpus: Gpus = 0


class Instance(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A problem; node k of the cluster is called ``nK`` unless ``node_names`` says otherwise.

    ``node_trainer`` has for each node the place of its trainer, -1 for none. ``current_map`` has a
    text of 0 and 1 for each trainer, a character for each node. If both are absent, trainers hold
    the first nodes, as many as their ``current_nodes``; or, if any has the key, those whose places
    are in ``held``: several trainers may have parts of one node. ``node_gpus`` is how many GPUs of
    each node no ordinary job has, null for all.
    """

    forward_time_s: Amount
    costs: Costs = Costs.PAPER
    nodes: Count
    node_names: tuple[Name, ...] | None = None
    node_trainer: tuple[Place, ...] | None = None
    current_map: tuple[str, ...] | None = None
    node_life_s: tuple[Amount | None, ...] | None = None
    node_since_s: tuple[Amount | None, ...] | None = None
    node_switch: tuple[Name | None, ...] | None = None
    trainers: Annotated[tuple[TrainerData, ...], Meta(max_length=MAX_TRAINERS)]
    classes: Annotated[tuple[ClassData, ...], Meta(min_length=1, max_length=MAX_CLASSES)] | None = (
        None
    )
    node_class: tuple[Count, ...] | None = None
    node_gpus: tuple[Gpus | None, ...] | None = None
    # What recorded instances say of their solution; not used.
    optimum: float | None = None
    solve_seconds_node_level_cbc: float | None = None


_PLACES: Mapping[str, type[Struct]] = {
    "": Instance,
    "trainers[]": TrainerData,
    "classes[]": ClassData,
}


class Request(Struct):
    """A problem, and how long it may take."""

    problem: Instance
    time_limit_s: float


class Answer(Struct, omit_defaults=True):
    """A line of the child: that it is ready, a better plan, whether the last one is the best.

    Or why it cannot go on.
    """

    ready: bool = False
    shares: list[Share] | None = None
    nodes: list[list[int]] | None = None  # of each trainer, by their places: if they are divided
    optimal: bool | None = None
    bound: float | None = None  # beside ``optimal``: no plan is worth more
    error: str | None = None


def read_instance(path: Path) -> Problem:
    """Read the file.

    Raises:
        InstanceError: in one line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)  # read no more, whatever size the file claims
    except OSError as error:
        raise InstanceError(f"{path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise InstanceError(f"{path}: larger than {MAX_BYTES // 2**20} MiB")
    try:
        return parse(text)
    except ValueError as error:
        raise InstanceError(f"{path}: {error}") from error


def parse(text: bytes) -> Problem:
    """Return the problem in this JSON. Raises ValueError in one line, with the key."""
    try:
        instance = msgspec.json.decode(text, type=Instance)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(in_words(error, _PLACES)) from error
    return problem_of(instance)


def in_words(error: Exception, places: Mapping[str, type[Struct]]) -> str:
    """Return msgspec's message as one line: the place first, and safe for a terminal.

    ``places`` has the type of the object at each place, for example ``trainers[]``.
    """
    text = "".join(char if char.isprintable() else "?" for char in str(error))
    if not isinstance(error, msgspec.ValidationError):
        return f"not JSON: {text[:200]}"
    what, at, where = text.rpartition(" - at `$")
    what, where = (what, where.strip("`").removeprefix(".")) if at else (where, "")
    kind = places.get(re.sub(r"\[.*?\]", "[]", where))
    if kind and (unknown := _UNKNOWN.fullmatch(what)):
        known = ", ".join(kind.__struct_encode_fields__)
        what = f"unknown key '{unknown[1][:60]}'; there are {known}"
    elif missing := _MISSING.fullmatch(what):
        what = f"{missing[1]} is missing"
    else:
        what = what[:200]
    return f"{where}: {what}" if where else what


def document_of(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain values, in the form in which it is read."""
    names = sorted(problem.pool)
    instance = _instance(problem, names, [one.name for one in problem.classes])
    instance.node_names = tuple(names)
    instance.node_switch = tuple(map(problem.switch_of.get, names)) if problem.switch_of else None
    for data, trainer in zip(instance.trainers, problem.trainers, strict=True):
        data.name = trainer.key
    document: dict[str, Any] = msgspec.to_builtins(instance)
    return document


def _in_order(
    times_s: Mapping[str, float], names: Sequence[str]
) -> tuple[float | None, ...] | None:
    """Return the times of all nodes, None for those that have no finite one, or if none has."""
    finite = {node: time_s for node, time_s in times_s.items() if math.isfinite(time_s)}
    return tuple(map(finite.get, names)) if finite else None


def anonymous(problem: Problem) -> Instance:
    """Return the problem without names, and without what only ``placement`` looks at."""
    names = list(map(str, range(len(problem.classes))))
    instance = _instance(problem, sorted(problem.pool), names)
    if not problem.in_parts:
        instance.node_life_s = instance.node_since_s = None
    return instance


def _instance(problem: Problem, nodes: Sequence[str], classes: Sequence[str]) -> Instance:
    """Return the problem with its nodes in this order, and with these names of its classes."""
    part = {node: place for place, one in enumerate(problem.classes) for node in one.nodes}
    called = {one.name: name for one, name in zip(problem.classes, classes, strict=True)}
    at = {node: place for place, node in enumerate(nodes)}
    return Instance(
        forward_time_s=problem.forward_time_s,
        costs=problem.costs,
        nodes=len(nodes),
        trainers=tuple(_trainer_data(one, called, at) for one in problem.trainers),
        classes=tuple(
            ClassData(called[one.name], one.hardware, one.gpus) for one in problem.classes
        )
        or None,
        node_class=tuple(part[node] for node in nodes) if problem.classes else None,
        node_gpus=tuple(map(problem.free.get, nodes)) if problem.in_parts else None,
        node_life_s=_in_order(problem.life_s, nodes),
        node_since_s=_in_order(problem.since_s, nodes),
    )


def _trainer_data(
    trainer: PlannedTrainer, called: Mapping[str, str], at: Mapping[str, int]
) -> TrainerData:
    return TrainerData(
        held=tuple(sorted(at[node] for node in trainer.current)),
        **{name: getattr(trainer, name) for name in _ALIKE},
        curve_nodes=trainer.curve.nodes,
        curve_objective=trainer.curve.values,
        barred=tuple(sorted(called.get(name, name) for name in trainer.barred)),
    )


def problem_of(instance: Instance) -> Problem:
    """Return the problem. Raises ValueError in one line, with the key."""
    names = _names(instance)
    held = _held(instance, names)
    return Problem(
        pool=frozenset(names),
        forward_time_s=instance.forward_time_s,
        trainers=tuple(
            _trainer(index, one, held[index]) for index, one in enumerate(instance.trainers)
        ),
        costs=instance.costs,
        life_s=_by_node("node_life_s", instance.node_life_s, names),
        since_s=_by_node("node_since_s", instance.node_since_s, names),
        switch_of=_by_node("node_switch", instance.node_switch, names),
        classes=_classes(instance, names),
        free=_free(instance, names),
    )


def numbers_of(nodes: Iterable[frozenset[str]]) -> list[list[int]]:
    """Return the places of nodes that have no other names."""
    return [sorted(int(name[1:]) for name in each) for each in nodes]


def _free(instance: Instance, names: Sequence[str]) -> dict[str, int]:
    free = _by_node("node_gpus", instance.node_gpus, names)
    if free and not any(one.gpus for one in instance.classes or ()):
        raise ValueError("node_gpus needs classes that say how many gpus each of their nodes has")
    return free


def _by_node(
    key: str, facts: Sequence[Fact | None] | None, names: Sequence[str]
) -> dict[str, Fact]:
    if facts is None:
        return {}
    if len(facts) != len(names):
        raise ValueError(f"{key} must have an entry, or null, for each node")
    return {name: fact for name, fact in zip(names, facts, strict=True) if fact is not None}


def _names(instance: Instance) -> Sequence[str]:
    names = instance.node_names
    if names is None:
        return [f"n{number}" for number in range(instance.nodes)]
    if len(names) != instance.nodes or len(set(names)) != len(names) or not _are_names(names):
        raise ValueError(f"node_names must be {instance.nodes} different names")
    return names


def _are_names(texts: Sequence[str]) -> bool:
    return all(map(str.isprintable, texts))


def _trainer(index: int, data: TrainerData, held: frozenset[str]) -> PlannedTrainer:
    name = str(index) if data.name is None else data.name
    try:
        if not _are_names((name, *data.barred)):
            raise ValueError("name and barred must be names")
        if data.curve_objective[:1] != (0.0,):
            raise ValueError("curve_objective must start with 0, the value without nodes")
        return PlannedTrainer(
            key=name,
            current=held,
            curve=ThroughputCurve(data.curve_nodes, data.curve_objective),
            **{name: getattr(data, name) for name in _ALIKE},
            barred=frozenset(data.barred),
        )
    except ValueError as error:
        raise ValueError(f"trainers[{index}]: {error}") from error


def _classes(instance: Instance, names: Sequence[str]) -> tuple[NodeClass, ...]:
    classes = instance.classes
    if classes is None:
        return ()
    if not all(_are_names((one.name, one.hardware)) for one in classes):
        raise ValueError("classes must have names")
    places = instance.node_class
    if places is None and len(classes) == 1:
        places = (0,) * len(names)
    parts = _parts("node_class", places or (), names, len(classes))
    return tuple(
        NodeClass(one.name, part, one.hardware, one.gpus)
        for one, part in zip(classes, parts, strict=True)
    )


def _parts(
    key: str, places: Sequence[int], names: Sequence[str], count: int
) -> list[frozenset[str]]:
    """Return the nodes of each place; -1 means none."""
    if len(places) != len(names) or max(places, default=-1) >= count:
        raise ValueError(f"{key} must have a whole number below {count} for each node")
    parts: list[set[str]] = [set() for _ in range(count)]
    for name, place in zip(names, places, strict=True):
        if place >= 0:
            parts[place].add(name)
    return list(map(frozenset, parts))


def _held(instance: Instance, names: Sequence[str]) -> list[frozenset[str]]:
    """Return the nodes of each trainer."""
    trainers, rows = instance.trainers, instance.current_map
    if instance.node_trainer is not None:
        return _parts("node_trainer", instance.node_trainer, names, len(trainers))
    if any(one.held is not None for one in trainers):
        return [_nodes_at(index, one.held or (), names) for index, one in enumerate(trainers)]
    if rows is None:
        free = iter(names)
        counts = [one.current_nodes for one in trainers]
        if sum(count or 0 for count in counts) > len(names):
            raise ValueError(
                f"current_nodes of all trainers must be at most nodes, {len(names)}, together"
            )
        if None in counts:
            raise ValueError(f"trainers[{counts.index(None)}]: current_nodes is missing")
        return [frozenset(next(free) for _ in range(count or 0)) for count in counts]
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


def _nodes_at(index: int, places: Sequence[int], names: Sequence[str]) -> frozenset[str]:
    if any(place >= len(names) for place in places) or len(set(places)) != len(places):
        raise ValueError(
            f"trainers[{index}]: held must have different whole numbers below {len(names)}"
        )
    return frozenset(names[place] for place in places)


def _is_row(row: str, length: int) -> bool:
    return len(row) == length and set(row) <= {"0", "1"}
