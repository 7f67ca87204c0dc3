"""What a held job waits for, of the jobs that its ``--dependency`` names. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

# As Slurm shows it: "afterok:12(unfulfilled)", "afterany:12_3", "after:12+5", "aftercorr:12_*".
_ONE = re.compile(r"(?P<kind>after\w*):(?P<job>\d+)(?:_(?P<task>\d+|\*))?(?P<more>\S*)")


def unmet(dependency: str, blocks: Callable[[int, int | None, bool], bool]) -> str:
    """Return what of a dependency still keeps its job waiting, empty if nothing known does.

    ``blocks`` says whether a job, or one task of it, is still to end, or, if the last argument is
    true, to begin. What Slurm alone can judge (``singleton``, exit codes) counts as met until Slurm
    has said that it failed.
    """
    parts = re.split("[,?]", dependency)
    left = [part for part in parts if _keeps_waiting(part, blocks)]
    if "?" in dependency and len(left) < len(parts):  # one is enough
        return ""
    return ",".join(part.replace("(unfulfilled)", "") for part in left)


def _keeps_waiting(part: str, blocks: Callable[[int, int | None, bool], bool]) -> bool:
    one = _ONE.fullmatch(part)
    if one is None or one["more"].endswith("(fulfilled)"):
        return False
    task = int(one["task"]) if (one["task"] or "*") != "*" else None
    return "(failed)" in one["more"] or blocks(int(one["job"]), task, one["kind"] == "after")
