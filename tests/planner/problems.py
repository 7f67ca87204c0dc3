"""Planning problems for the tests: the recorded ones, small ones by hand, random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlannedTrainer, Problem

INSTANCES = Path(__file__).parents[3] / "shared" / "data" / "planner-instances"
LINEAR = ThroughputCurve((0, 1, 8), (0.0, 1.0, 8.0))


def planned(
    key: str = "a",
    current: str = "",
    bounds: tuple[int, int] = (1, 8),
    curve: ThroughputCurve = LINEAR,
    costs: tuple[float, float] = (10.0, 5.0),
    sizes: tuple[int, ...] = (),
) -> PlannedTrainer:
    """A trainer that scales linearly; ``current`` names its nodes, separated by spaces."""
    if sizes:
        bounds = sizes[0], sizes[-1]
    current_nodes = frozenset(current.split())
    return PlannedTrainer(key, *bounds, current_nodes, curve, *costs, sizes=sizes)


def problem(
    nodes: int, *trainers: PlannedTrainer, forward_time_s: float = 120.0, **others: Any
) -> Problem:
    """A pool of nodes n0, n1, ..."""
    return Problem(frozenset(f"n{k}" for k in range(nodes)), forward_time_s, trainers, **others)


# For the nodes of a trainer that scales linearly: c and d together, not b, who has more by each.
RIVALS = (
    planned("b", bounds=(3, 3), curve=ThroughputCurve((0, 3), (0.0, 9.0))),
    planned("c", bounds=(2, 2), curve=ThroughputCurve((0, 2), (0.0, 5.9))),
    planned("d", bounds=(2, 2), curve=ThroughputCurve((0, 2), (0.0, 5.9))),
)


@st.composite
def curves(draw: st.DrawFn) -> ThroughputCurve:
    """Concave, linear, flat and arbitrary curves, in large and small units."""
    nodes = sorted(draw(st.sets(st.integers(1, 24), min_size=1, max_size=6)))
    unit = draw(st.sampled_from([1e-3, 1.0, 1e6]))
    exponent = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0, None]))
    if exponent is None:
        values = [draw(st.integers(0, 100)) * unit for _ in nodes]
    else:
        values = [unit * count**exponent for count in nodes]
    return ThroughputCurve((0, *nodes), (0.0, *values))


def bounds(least: int, most: int) -> st.SearchStrategy[dict[str, Any]]:
    """A trainer's bounds, up to these; some trainers can have a few sizes only."""
    low = st.integers(1, least)
    whole = low.flatmap(lambda one: st.tuples(st.just(one), st.integers(one, most)))
    few = st.sets(st.integers(1, most), min_size=1, max_size=5).map(lambda one: tuple(sorted(one)))
    return st.one_of(
        whole.map(lambda pair: {"min_nodes": pair[0], "max_nodes": pair[1]}),
        few.map(lambda one: {"min_nodes": one[0], "max_nodes": one[-1], "sizes": one}),
    )


@st.composite
def costs_of_a_change(draw: st.DrawFn) -> dict[str, float]:
    """What it costs a trainer to start, to grow, to shrink, and to go on from further back."""
    costs = ("rescale_up_s", "rescale_down_s", "paused_s", "start_cost", "loss_s")
    return {name: draw(st.sampled_from([0.0, 0.2, 17.0, 300.0])) for name in costs}


@st.composite
def problems(draw: st.DrawFn, costs: tuple[Costs, ...] = (Costs.PAPER,)) -> Problem:
    """Up to 6 trainers on up to 20 nodes, some of which they have; not all within their bounds."""
    names = draw(st.permutations([f"n{k}" for k in range(draw(st.integers(0, 20)))]))
    trainers = []
    for index in range(draw(st.integers(0, 6))):
        held = draw(st.integers(0, min(len(names), 6)))
        current, names = frozenset(names[:held]), names[held:]
        trainers.append(
            PlannedTrainer(
                key=f"t{index}",
                **draw(bounds(4, 24)),
                current=current,
                curve=draw(curves()),
                **draw(costs_of_a_change()),
            )
        )
    pool = frozenset(names).union(*(one.current for one in trainers))
    forward_s = draw(st.sampled_from([1.0, 120.0, 600.0]))
    return Problem(pool, forward_s, tuple(trainers), draw(st.sampled_from(costs)))


@st.composite
def problems_with_classes(draw: st.DrawFn) -> Problem:
    """Up to 3 trainers, 6 nodes, 3 classes; some stand on nodes that they may not use."""
    parts: dict[int, list[str]] = {}
    for number in range(draw(st.integers(1, 6))):
        parts.setdefault(draw(st.integers(0, 2)), []).append(f"n{number}")
    classes = tuple(
        NodeClass(f"c{part}", frozenset(names), draw(st.sampled_from(["", "fast"])))
        for part, names in sorted(parts.items())
    )
    names = draw(st.permutations(sorted(name for part in parts.values() for name in part)))
    trainers = []
    for index in range(draw(st.integers(0, 3))):
        held = draw(st.integers(0, min(len(names), 3)))
        current, names = frozenset(names[:held]), names[held:]
        trainers.append(
            PlannedTrainer(
                key=f"t{index}",
                **draw(bounds(3, 6)),
                current=current,
                curve=draw(curves()),
                **draw(costs_of_a_change()),
                barred=draw(st.sampled_from([frozenset(), frozenset({"c0"}), frozenset({"c1"})])),
            )
        )
    return Problem(
        pool=frozenset(name for part in parts.values() for name in part),
        forward_time_s=draw(st.sampled_from([1.0, 120.0, 600.0])),
        trainers=tuple(trainers),
        costs=draw(st.sampled_from(Costs)),
        classes=classes,
    )


@st.composite
def problems_in_parts(draw: st.DrawFn) -> Problem:
    """Up to 4 trainers on up to 5 nodes of 4 or 8 GPUs, parts of which ordinary jobs have."""
    whole = [draw(st.sampled_from([4, 8, 8, 0])) for _ in range(draw(st.integers(1, 2)))]
    kinds = [draw(st.sampled_from(["", "fast"])) for _ in whole]
    parts: list[list[str]] = [[] for _ in whole]
    for number in range(draw(st.integers(1, 5))):
        parts[draw(st.integers(0, len(whole) - 1))].append(f"n{number}")
    classes = tuple(
        NodeClass(f"c{at}", frozenset(names), kinds[at], whole[at])
        for at, names in enumerate(parts)
    )
    has = {node: part.gpus for part in classes for node in part.nodes}
    free = {node: draw(st.integers(0, gpus)) for node, gpus in has.items() if gpus}
    left = {node: free.get(node, 1) for node in has}
    trainers = []
    for index in range(draw(st.integers(0, 4))):
        gpus = draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8]))
        current = set()
        for node in draw(st.lists(st.sampled_from(sorted(has)), max_size=3, unique=True)):
            units = (gpus or has[node]) if has[node] else 1
            if left[node] >= units and (has[node] or not gpus):
                left[node] -= units
                current.add(node)
        trainers.append(
            PlannedTrainer(
                key=f"t{index}",
                **draw(bounds(3, 5)),
                current=frozenset(current),
                curve=draw(curves()),
                **draw(costs_of_a_change()),
                barred=draw(st.sampled_from([frozenset[str](), frozenset({"c1"})])),
                gpus=gpus,
            )
        )
    return Problem(
        pool=frozenset(has),
        forward_time_s=draw(st.sampled_from([1.0, 120.0, 600.0])),
        trainers=tuple(trainers),
        costs=draw(st.sampled_from(Costs)),
        classes=classes,
        free=free,
    )
