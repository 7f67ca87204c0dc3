"""What a run of an experiment is, what comes of it, and how it is varied. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from bftrainer_slurm.replay.drive import Outcome

DEDICATED = "dedicated"


@dataclass(frozen=True, slots=True)
class Run:
    """One replay of the Summit trace.

    ``trainers`` names the file, ``nodes`` and ``hours`` are the part of the trace (None: all).
    All trainers wait from the start. ``method`` is one of ``replays.METHODS``, or
    ``dedicated``: the same trainers on as many dedicated nodes as the pool has on average.
    ``forward_time_s`` None: adapted to the holes seen lately. ``scale`` multiplies rescale costs.
    ``repeat`` is how often the file's trainers come, one after the other: they must not run out.
    """

    trainers: str
    nodes: int | None = 1024
    hours: float | None = None
    at_once: int = 10
    method: str = "milp"
    forward_time_s: float | None = None
    scale: float = 1.0
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run; ``outcome`` is None where the nodes were dedicated.

    ``plans`` counts plans by status; the times of plans and of the whole run are in seconds.
    ``commit`` is the version of the product that ran.
    """

    samples: float
    outcome: Outcome | None
    plans: dict[str, int]
    plan_median_s: float
    plan_p95_s: float
    plan_max_s: float
    seconds: float
    commit: str


Results: TypeAlias = Mapping[Run, Result]
Way: TypeAlias = Callable[[Run], Run]


def free(run: Run) -> Run:
    """Return the run that gives U_free: the same with rescaling free of cost."""
    return replace(run, method="milp", forward_time_s=None, scale=0.0)


def dedicated(run: Run) -> Run:
    """Return the run that U and U_free are measured by; it is planned by the product's planner."""
    return replace(free(run), method=DEDICATED)


def papers(run: Run) -> Run:
    """Return the run with the paper's model and its forward time."""
    return replace(run, method="paper", forward_time_s=120.0)


def method(name: str, **others: float | None) -> Way:
    """Return the variation of a run that plans by another method."""
    return lambda run: replace(run, method=name, **others)  # type: ignore[arg-type]


EQUAL_SHARE = method("equal-share", forward_time_s=None)  # it does not look ahead
ALL_METHODS: dict[str, Way] = {
    "equal share": EQUAL_SHARE,
    "the paper's model": method("paper"),
    "this planner": method("milp"),
    "rescaling free (U_free)": free,
}
MAIN_METHODS: dict[str, Way] = {
    "equal share": EQUAL_SHARE,
    "the paper's model, 120 s": papers,
    "this planner, 120 s": method("milp", forward_time_s=120.0),
    "this planner, adaptive": method("milp", forward_time_s=None),
    "rescaling free (U_free)": free,
}
# For what takes long.
ESSENTIAL = {name: way for name, way in MAIN_METHODS.items() if name != "this planner, 120 s"}
