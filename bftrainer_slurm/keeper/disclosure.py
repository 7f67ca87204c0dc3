"""Who may see what about trainers: in the status, in the history and on the web page. Pure.

Of other users' trainers everybody sees what squeue shows, and what follows from it over time.
Only the owner sees a trainer's progress, how it scales, and the last output of its script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

STATUS_PAYLOAD = "bftrainer status"  # the text in the credential of a user who asks for the status

_EVERYBODYS = (
    *("array", "name", "user", "state", "min_nodes", "max_nodes", "sizes", "step"),
    *("gpus", "weight", "grace_s"),
    *("submit_s", "nodes", "starting", "grew", "shrank", "reclaimed"),
    *("node_s", "gpu_s"),
    *("first_s", "last_s", "from_s", "until_s", "total", "course", "changes", "earlier_changes"),
)


def disclosed(document: bytes, may_see: Callable[[int], bool]) -> bytes:
    """Return a published status for one user; ``may_see(array)``: they see all of this trainer."""
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        return b""
    if not isinstance(found, dict):
        return b""
    trainers = found.get("trainers")
    if isinstance(trainers, list):
        good = [one for one in trainers if isinstance(one, dict) and type(one.get("array")) is int]
        private = bool(found.get("jobs_private"))
        seen = (shown(one, own=may_see(one["array"]), private=private) for one in good)
        found["trainers"] = [one for one in seen if one is not None]
    return json.dumps(found, separators=(",", ":")).encode()


def shown(trainer: Mapping[str, Any], *, own: bool, private: bool) -> dict[str, Any] | None:
    """Return what a user may see of a trainer; None: nothing.

    ``own``: it is theirs, or they may see everything. ``private``: users see their own jobs only.
    """
    if own:
        return dict(trainer)
    if private:
        return None
    return {key: trainer[key] for key in _EVERYBODYS if key in trainer} | {"hidden": True}
