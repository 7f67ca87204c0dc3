"""What became of each fault, and of a whole run as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LONG_S = 15.0  # if it takes longer, it is said what took so long


@dataclass(slots=True)
class Outcome:
    """What became of one injected fault; ``settled_s`` is None where not all was well again."""

    faults: list[str] = field(default_factory=list)  # it, and the one that came on top
    details: list[str] = field(default_factory=list)  # what each did, in words
    settled_s: float | None = None
    violations: dict[str, None] = field(default_factory=dict)  # in order, each once
    lost: dict[str, float] = field(default_factory=dict)  # by trainer: steps made in vain
    waited_for: list[str] = field(default_factory=list)  # what was last to hold again

    def __str__(self) -> str:
        words = f"{' and '.join(self.faults)}: "
        if self.settled_s is None:
            words += "never settled"
        else:
            lost = ", ".join(f"{steps:.0f} {name}" for name, steps in self.lost.items())
            words += f"well in {self.settled_s:.0f} s, lost {lost}"
            if self.settled_s > _LONG_S:
                words += f" (last of all: {'; '.join(self.waited_for)})"
        return "\n          VIOLATION: ".join([words, *self.violations])


def rendered(result: Mapping[str, Any]) -> str:
    """Return a line for each fault, every violation, and what was counted."""
    counted = [f"{name:<18}{value}" for name, value in result.items() if name != "outcomes"]
    return "\n".join([*map(str, result["outcomes"]), "", *counted])
