"""What ``--constraint`` asks of a node's features, as far as one node alone can answer it.

Slurm decides what runs where; this only foresees its answer.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

# Counts ask for something of several nodes together, brackets for the same feature on all of them,
# but an element is a job of one node. Slurm's releases read parentheses differently.
_NOT_OF_ONE_NODE = re.compile(r"[][(){}*]")
_OPERATOR = re.compile(r"([&|,])")


class ConstraintError(ValueError):
    """A constraint that cannot be decided for one node; the message says what to write."""


@dataclass(frozen=True)
class Constraint:
    """Features joined by ``&`` (or a comma) and ``|``, read from left to right as Slurm does."""

    first: str
    rest: tuple[tuple[str, str], ...] = ()  # operator, feature

    def allows(self, features: Set[str]) -> bool:
        """Whether a node with these features fits."""
        fits = self.first in features
        for operator, feature in self.rest:
            has = feature in features
            fits = fits or has if operator == "|" else fits and has
        return fits


def parse_constraint(text: str) -> Constraint:
    """Read a constraint as its user wrote it, or as Slurm shows it.

    Raises:
        ConstraintError: in one line.
    """
    first, *rest = _OPERATOR.split(text)
    pairs = tuple((rest[at], rest[at + 1]) for at in range(0, len(rest), 2))
    if _NOT_OF_ONE_NODE.search(text) or not first or not all(name for _, name in pairs):
        raise ConstraintError(
            "a trainer's nodes come one by one; write --constraint as features with & or |, "
            "without counts, brackets or parentheses"
        )
    return Constraint(first, pairs)
