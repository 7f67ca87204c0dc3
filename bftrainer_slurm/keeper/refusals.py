"""What the keeper has refused, and whom it has hung up on: all counted, each kind logged once.

Once for each place it came from: who floods the keeper must not flood its log too.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict

logger = logging.getLogger(__name__)

REMEMBERED = 1_000


class Refusals:
    """``counts`` has how many of each kind there were."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def add(self, kind: str, origin: str, why: str) -> None:
        """Count one, and log it where it is the first of its kind from this ``origin``."""
        self.counts[kind] += 1
        if (kind, origin) in self._said:
            return
        self._said[kind, origin] = None
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        logger.warning(
            "refused (%s), from %s: %s; more of these are only counted", kind, origin, why
        )
