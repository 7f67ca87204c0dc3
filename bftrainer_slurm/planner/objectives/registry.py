"""Objectives by name: ours, a site's own by entry point, and combinations with '+'."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bftrainer_slurm.planner.objectives.base import Modifier, Objective, ObjectiveError
from bftrainer_slurm.planner.objectives.efficiency import efficiency
from bftrainer_slurm.planner.objectives.fairness import fairness
from bftrainer_slurm.planner.objectives.finish import finish
from bftrainer_slurm.planner.objectives.goodput import goodput
from bftrainer_slurm.planner.objectives.speedup import speedup
from bftrainer_slurm.planner.objectives.throughput import throughput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "bftrainer.objectives"
# Not by entry point: they always exist, however we were installed, and cannot be replaced.
METRICS: dict[str, Objective] = {
    "throughput": throughput,
    "speedup": speedup,
    "efficiency": efficiency,
    "goodput": goodput,
}
MODIFIERS: dict[str, Modifier] = {"finish": finish, "fairness": fairness}


def find(name: str) -> Objective:
    """Return the objective of a name like ``speedup+finish+fairness``: a metric, then modifiers.

    Modifiers are applied from left to right. Raises ObjectiveError for a name that is not known
    and for a site's own objective that cannot be loaded.
    """
    metric, *modifiers = (part.strip() for part in name.split("+"))
    if metric in MODIFIERS:
        raise ObjectiveError(
            f"objective {name!r}: {metric} modifies a metric, write for example speedup+{metric}"
        )
    objective = METRICS[metric] if metric in METRICS else _site_objective(metric)
    for index, modifier in enumerate(modifiers):
        if modifier not in MODIFIERS or modifier in modifiers[:index]:
            raise ObjectiveError(
                f"objective {name!r}: after a metric come, each at most once: "
                f"{', '.join(sorted(MODIFIERS))}"
            )
        objective = MODIFIERS[modifier](objective)
    return objective


def known() -> list[str]:
    """Return the names of all metrics, a site's own included."""
    return sorted({*METRICS, *_entry_points().names})


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # a tenth of the start of users' commands

    return entry_points(group=GROUP)


def _site_objective(name: str) -> Objective:
    entries = set(_entry_points().select(name=name))
    if not entries:
        raise ObjectiveError(f"unknown objective {name!r}; there are {', '.join(known())}")
    if len(entries) > 1:
        values = ", ".join(sorted(entry.value for entry in entries))
        raise ObjectiveError(f"objective {name!r} is not unique: remove one of {values}")
    entry = entries.pop()
    try:
        found = entry.load()
    except Exception as error:  # importing a site's own code may raise anything
        raise ObjectiveError(f"objective {name!r}: cannot load {entry.value}: {error}") from error
    if not callable(found):
        raise ObjectiveError(f"objective {name!r}: {entry.value} is not a function")
    return cast(Objective, found)
