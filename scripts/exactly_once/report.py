"""The results as text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchkit.figures import Target, at_most
from scripts.benchkit.text import table
from scripts.exactly_once.account import Account
from scripts.exactly_once.ways import GLOBAL_BATCH, PLANNED, Way

_HEADS = ("", "lost", "twice", "again", "planned", "in all", "of", "ended", "rate off", "loss")


@dataclass(frozen=True, slots=True)
class Result:
    """One way of training under one series of changes; ``wrong``: what an agent said."""

    way: Way
    changes: Sequence[str]
    found: Account | None
    said: Sequence[str] = ()
    wrong: str = ""
    asked_steps: int = 0  # of the optimizer, in place of epochs

    @property
    def ended(self) -> str:
        """Whether the training ended after what was asked for."""
        found = self.found
        if found is None or found.loss is None:
            return "no"
        if self.asked_steps:
            early, late = found.steps < self.asked_steps, found.steps > self.asked_steps
        else:
            early, late = found.lost > 0, found.twice > (len(self.changes) + 1) * GLOBAL_BATCH
        return "early" if early else "late" if late else "yes"


def rows(results: Sequence[Result]) -> str:
    """Return the table: samples, each as often as there are epochs."""
    lines = [_row(one) for one in results]
    words = [f"{one.way.name}: {one.wrong}" for one in results if one.wrong]
    legend = (
        "samples: lost (asked for, not in the model), twice (in the model once more than asked\n"
        "for), again (thrown away by a restart and trained again; planned: of these at joins and\n"
        "planned leaves); rate off: largest distance of the learning rate from that of the\n"
        "unchanged run at the same sample, of its highest"
    )
    return "\n".join([legend, table([_HEADS, *lines]), *words])


def _row(one: Result) -> list[str]:
    found = one.found
    if found is None:
        return [one.way.title, *"------", one.ended, "-", "-"]
    numbers = (found.lost, found.twice, found.again, found.planned, found.trained, found.asked)
    if one.asked_steps:  # without epochs no sample is lost or trained twice
        cells = ["-", "-", *(f"{number:,}" for number in numbers[2:5]), "-"]
    else:
        cells = [f"{number:,}" for number in numbers]
    loss = "-" if found.loss is None else f"{found.loss:.5f}"
    return [one.way.title, *cells, one.ended, f"{found.rate_off:.3f}", loss]


def targets(results: Sequence[Result]) -> list[Target]:
    """Return what each training that counts epochs should reach: none lost, few twice."""
    held = []
    for one in results:
        if one.found is not None and not one.way.steps:
            held.append(at_most(f"{one.way.title}: samples lost", one.found.lost, 0))
            most = len(one.changes) * GLOBAL_BATCH
            held.append(at_most(f"{one.way.title}: samples twice", one.found.twice, most))
            most = sum(kind in PLANNED for kind in one.changes) * GLOBAL_BATCH
            again = one.found.planned
            held.append(at_most(f"{one.way.title}: samples again, planned", again, most))
    return held
