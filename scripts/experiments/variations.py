"""What a run is compared with: the same by another method, or with another number of trainers."""

from __future__ import annotations

from dataclasses import replace

from scripts.experiments.measures import Others
from scripts.experiments.runs import free, papers


def method(name: str, **others: float | None) -> Others:
    """Return the variation of a run that plans by another method."""
    return lambda run: replace(run, method=name, **others)  # type: ignore[arg-type]


def at(count: int, vary: Others) -> Others:
    """Return the variation with so many trainers at once."""
    return lambda run: replace(vary(run), at_once=count)


EQUAL_SHARE = method("equal-share", forward_time_s=None)  # it does not look ahead
ALL_METHODS: dict[str, Others] = {
    "equal share": EQUAL_SHARE,
    "the paper's model": method("paper"),
    "this planner": method("milp"),
    "rescaling free (U_free)": free,
}
MAIN_METHODS: dict[str, Others] = {
    "equal share": EQUAL_SHARE,
    "the paper's model, 120 s": papers,
    "this planner, 120 s": method("milp", forward_time_s=120.0),
    "this planner, adaptive": method("milp", forward_time_s=None),
    "rescaling free (U_free)": free,
}
ESSENTIAL = {
    label: vary for label, vary in MAIN_METHODS.items() if label != "this planner, 120 s"
}  # for what takes long
