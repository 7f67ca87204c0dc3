"""What a held job waits for, of the jobs that its ``--dependency`` names. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bftrainer_slurm.model import ElementState

FAILED = "(failed)"
_UNFULFILLED = "(unfulfilled)"
# As Slurm shows it: "afterok:12(unfulfilled)", "afterany:12_3", "after:12+5", "aftercorr:12_*".
_CLAUSE = re.compile(r"(?P<kind>after\w*):(?P<job>\d+)(?:_(?P<task>\d+|\*))?(?P<more>\S*)")


def unmet(dependency: str, states_of: Callable[[int, int | None], Sequence[ElementState]]) -> str:
    """Return the part of a dependency that still keeps its job waiting, empty if none does.

    ``states_of`` returns the states of a job's tasks, or of one task; empty if Slurm has forgotten
    the job. Slurm updates the dependency of a held job up to a minute after the other job's end:
    until then the states decide. A clause that they do not decide (``singleton``, a forgotten job)
    counts as met until Slurm shows it as failed.
    """
    parts = [_unmet_clause(part, states_of) for part in re.split("[,?]", dependency)]
    left = [part for part in parts if part]
    if "?" in dependency and len(left) < len(parts):  # "?" means that one is enough
        return ""
    return ",".join(left)


def _unmet_clause(part: str, states_of: Callable[[int, int | None], Sequence[ElementState]]) -> str:
    one = _CLAUSE.fullmatch(part)
    if one is None or one["more"].endswith("(fulfilled)"):
        return ""
    if one["more"].endswith(FAILED):
        return part
    words = part.removesuffix(_UNFULFILLED)
    states = states_of(int(one["job"]), None if one["task"] in (None, "*") else int(one["task"]))
    if one["kind"] == "after":
        return words if any(state.waits for state in states) else ""
    if not all(state.over for state in states):
        return words
    well = all(state is ElementState.COMPLETED for state in states)
    failed = (one["kind"] == "afterok" and not well) or (
        one["kind"] == "afternotok" and well and bool(states)
    )
    return words + FAILED if failed else ""
