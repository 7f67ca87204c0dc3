"""What can keep a trainer from having more nodes; separate, because users' commands lack numpy."""

from __future__ import annotations

from enum import Enum


class Limit(Enum):
    """What keeps a trainer from having more nodes."""

    MOST = "most"  # it has as many as it may have
    POOL = "pool"  # there are no more nodes that it may use, or too few for its least
    NO_GAIN = "no gain"  # it trains no faster on more
    COST = "cost"  # what more nodes bring is less than what the change of size costs
    OTHERS = "others"  # others would have to give up nodes
    UNPROVEN = "unproven"  # nothing does: the planner ran out of time
