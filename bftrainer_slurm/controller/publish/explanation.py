"""What ``bftrainer explain`` is told of a plan: its terms for each trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bftrainer_slurm.planner.problem import Plan, Problem
from bftrainer_slurm.planner.reasons import reasons_of


class Explanation:
    """The terms of the last plan, worked out once."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._terms: Mapping[str, dict[str, Any]] = {}

    def of(
        self, array: int, plan: Plan | None, problem: Problem | None, planned_s: float
    ) -> dict[str, Any]:
        """Return ``plan``: the terms of one trainer, None: it was not planned for.

        ``problem`` is what the plan was made for, at ``planned_s``.
        """
        if plan is not self._plan:
            self._plan = plan
            self._terms = {}
            if plan is not None and problem is not None:
                self._terms = terms_of(problem, plan, planned_s)
        return {"plan": self._terms.get(str(array))}


def terms_of(problem: Problem, plan: Plan, planned_s: float) -> dict[str, dict[str, Any]]:
    """Return the terms of all trainers of a plan, by key."""
    return {
        key: _rounded(asdict(one)) | {"limit": one.limit.value, "time_s": planned_s}
        for key, one in reasons_of(problem, plan).items()
    }


def _rounded(value: Any) -> Any:
    """Keep six digits of each number: they are for people, and there may be many."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
