"""What of the published status is shown to whom. Pure.

Of others' trainers nobody sees more than squeue shows anyway, and what follows from it over time:
how far a trainer has come, how it scales and what its script said last is for its owner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

STATUS_PAYLOAD = "bftrainer status"  # what a credential of who asks for the status is made for

_EVERYBODYS = (
    *("array", "name", "user", "state", "min_nodes", "max_nodes", "weight", "grace_s"),
    *("submit_s", "nodes", "starting", "grew", "shrank", "reclaimed", "node_s"),
)


def disclosed(document: bytes, may_see: Callable[[int], bool]) -> bytes:
    """Return a published status for somebody who ``may_see`` all of these trainers (by array).

    Under ``PrivateData=jobs`` they hear of no others.
    """
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        return b""
    if not isinstance(found, dict):
        return b""
    trainers = found.get("trainers")
    if isinstance(trainers, list):
        good = [one for one in trainers if isinstance(one, dict) and type(one.get("array")) is int]
        theirs = {one["array"] for one in good if may_see(one["array"])}
        if found.get("jobs_private"):
            good = [one for one in good if one["array"] in theirs]
        found["trainers"] = [one if one["array"] in theirs else outside(one) for one in good]
    return json.dumps(found, separators=(",", ":")).encode()


def outside(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what everybody may see of a trainer in a status."""
    return {key: trainer[key] for key in _EVERYBODYS if key in trainer} | {"hidden": True}
