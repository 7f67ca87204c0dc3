"""The results as text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchkit.figures import Target, at_most
from scripts.benchkit.text import table
from scripts.exactly_once.account import Account
from scripts.exactly_once.ways import Way

_HEADS = ("", "lost", "twice", "again", "in all", "of", "ended", "rate off", "loss")


@dataclass(frozen=True, slots=True)
class Result:
    """One way of training under one series of changes; ``wrong``: what an agent said."""

    way: Way
    changes: Sequence[str]
    found: Account | None
    said: Sequence[str] = ()
    wrong: str = ""

    @property
    def ended(self) -> bool:
        """Whether the training ended, and not before all samples were trained."""
        found = self.found
        return found is not None and found.loss is not None and (not found.lost or self.way.steps)


def rows(results: Sequence[Result]) -> str:
    """Return the table: samples, each as often as there are epochs."""
    lines = [_row(one) for one in results]
    words = [f"{one.way.name}: {one.wrong}" for one in results if one.wrong]
    legend = (
        "samples: lost (asked for, not in the model), twice (in the model once more than asked\n"
        "for), again (thrown away by a restart and trained again); rate off: largest distance of\n"
        "the learning rate from a straight line over all samples, of its highest"
    )
    return "\n".join([legend, table([_HEADS, *lines]), *words])


def _row(one: Result) -> list[str]:
    found = one.found
    if found is None:
        return [one.way.title, *["-"] * (len(_HEADS) - 1)]
    numbers = (found.lost, found.twice, found.again, found.trained, found.asked)
    loss = "-" if found.loss is None else f"{found.loss:.5f}"
    ended = "yes" if one.ended else "no" if found.loss is None else "early"
    cells = [*(f"{number:,}" for number in numbers), ended, f"{found.rate_off:.3f}", loss]
    return [one.way.title, *cells]


def targets(results: Sequence[Result], global_batch: int) -> list[Target]:
    """Return what each training that counts epochs should reach: none lost, few twice."""
    held = []
    for one in results:
        if one.found is not None and not one.way.steps:
            changes = len(one.changes)
            held.append(at_most(f"{one.way.title}: samples lost", one.found.lost, 0))
            most = changes * global_batch
            held.append(at_most(f"{one.way.title}: samples twice", one.found.twice, most))
    return held
