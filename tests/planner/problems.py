"""Planning problems for the tests: the recorded ones, small ones by hand, random ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.problem import Costs, NodeClass, PlannedTrainer, Problem

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
HALVES = (NodeClass("first", frozenset({"n0", "n1"})), NodeClass("other", frozenset({"n2", "n3"})))
# CBC alone proves a plan of it. The best is worth 1396, to change nothing 480.
HARD = problem(4, planned("a", "n0 n1 n2 n3"), *RIVALS, classes=HALVES)


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


COSTS = ("rescale_up_s", "rescale_down_s", "paused_s", "start_cost", "loss_s")
forward_times_s = st.sampled_from([1.0, 120.0, 600.0])


@st.composite
def trainers(
    draw: st.DrawFn, index: int, current: Iterable[str], sizes: tuple[int, int], **known: Any
) -> PlannedTrainer:
    """One with any curve and any costs of a change, with bounds up to these sizes."""
    costs = {name: draw(st.sampled_from([0.0, 0.2, 17.0, 300.0])) for name in COSTS}
    limits = draw(bounds(*sizes))
    return PlannedTrainer(
        f"t{index}", current=frozenset(current), curve=draw(curves()), **limits, **costs, **known
    )


@st.composite
def problems(draw: st.DrawFn, costs: tuple[Costs, ...] = (Costs.PAPER,)) -> Problem:
    """Up to 6 trainers on up to 20 nodes, some of which they have; not all within their bounds."""
    names = draw(st.permutations([f"n{k}" for k in range(draw(st.integers(0, 20)))]))
    pool, asking = frozenset(names), []
    for index in range(draw(st.integers(0, 6))):
        held = draw(st.integers(0, min(len(names), 6)))
        asking.append(draw(trainers(index, names[:held], (4, 24))))
        names = names[held:]
    return Problem(pool, draw(forward_times_s), tuple(asking), draw(st.sampled_from(costs)))


@st.composite
def problems_in_parts(
    draw: st.DrawFn, gpus: Sequence[int] = (4, 8, 8, 0), classes: int = 2, most: int = 5
) -> Problem:
    """Up to 4 trainers on some nodes of so many GPUs, parts of which ordinary jobs have."""
    whole = [draw(st.sampled_from(gpus)) for _ in range(draw(st.integers(1, classes)))]
    kinds = [draw(st.sampled_from(["", "fast"])) for _ in whole]
    parts: list[list[str]] = [[] for _ in whole]
    for number in range(draw(st.integers(1, most))):
        parts[draw(st.integers(0, len(whole) - 1))].append(f"n{number}")
    all_classes = tuple(
        NodeClass(f"c{at}", frozenset(part), kinds[at], whole[at]) for at, part in enumerate(parts)
    )
    has = {node: part.gpus for part in all_classes for node in part.nodes}
    free = {node: draw(st.integers(0, count)) for node, count in has.items() if count}
    left = {node: free.get(node, 1) for node in has}
    asking = []
    for index in range(draw(st.integers(0, 4))):
        size = draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8] if any(gpus) else [0]))
        current = set()
        for node in draw(st.lists(st.sampled_from(sorted(has)), max_size=3, unique=True)):
            units = (size or has[node]) if has[node] else 1
            if left[node] >= units and (has[node] or not size):
                left[node] -= units
                current.add(node)
        barred = draw(st.sampled_from([frozenset(), frozenset({"c0"}), frozenset({"c1"})]))
        asking.append(draw(trainers(index, current, (3, most), barred=barred, gpus=size)))
    pool, costs = frozenset(has), draw(st.sampled_from(Costs))
    return Problem(
        pool, draw(forward_times_s), tuple(asking), costs, classes=all_classes, free=free
    )


def problems_with_classes() -> st.SearchStrategy[Problem]:
    """Up to 6 nodes in 3 classes; some trainers stand on nodes that they may not use."""
    return problems_in_parts((0,), 3, 6)
