"""What the planner and its child process say to each other, each message a line of JSON."""

from __future__ import annotations

from msgspec import Struct

from bftrainer_slurm.planner.instance import Instance
from bftrainer_slurm.planner.problem import Share


class Request(Struct):
    """A problem, and how long it may take."""

    problem: Instance
    time_limit_s: float


class Answer(Struct, omit_defaults=True):
    """What the child says: that it is ready, a better plan, whether the last one is the best.

    Or why it cannot go on.
    """

    ready: bool = False
    shares: list[Share] | None = None
    optimal: bool | None = None
    error: str | None = None
