"""What users see of a trainer's deadline: what it needs, and whether it is on time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def deadline_status(
    left: float, left_s: float, rate: float | None, most: float | None
) -> Mapping[str, Any]:
    """Return a deadline as the status has it.

    ``left`` are the samples that are left, ``left_s`` the seconds. ``rate`` is the trainer's
    samples/s now, None: it makes none; ``most`` what it makes on all its nodes, None: not known.
    """
    needs = left / left_s if left > 0 and left_s > 0 else None
    if left <= 0:
        state = "done"
    elif left_s <= 0:
        state = "passed"
    elif most is None:
        state = "not known"
    elif needs is not None and needs > most:
        state = "cannot be met"
    else:
        state = "on time" if rate and needs and rate >= needs else "late"
    late_s = max(0.0, left / rate - left_s) if state in ("late", "cannot be met") and rate else None
    return {"state": state, "needs": needs, "late_s": late_s}
