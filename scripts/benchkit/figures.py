"""Summaries of several values, and targets that a value meets or misses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """Several values of one kind, in their unit."""

    count: int
    median: float
    mean: float
    p95: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, what was asked of it, and whether it meets that."""

    text: str
    found: float
    asked: str
    met: bool

    def __str__(self) -> str:
        found = f"{self.found:.3f}" if isinstance(self.found, float) else str(self.found)
        return f"{'met' if self.met else 'MISSED':<8}{self.text}: {found} {self.asked}"


def summarise(values: Sequence[float]) -> Summary:
    """Summarise at least one value.

    A quantile lies between the two values nearest to it, as numpy has it.
    """
    least, median, p95, most = np.quantile(values, (0, 0.5, 0.95, 1)).tolist()
    return Summary(len(values), median, float(np.mean(values)), p95, least, most)


def at_most(text: str, found: float, most: float) -> Target:
    """Return the target that a figure is no larger than ``most``."""
    return Target(text, found, f"<= {most:g}", found <= most)


def at_least(text: str, found: float, least: float) -> Target:
    """Return the target that a figure is no smaller than ``least``."""
    return Target(text, found, f">= {least:g}", found >= least)
