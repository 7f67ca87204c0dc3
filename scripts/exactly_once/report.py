"""The results as text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchkit.figures import Target, at_most
from scripts.benchkit.text import table
from scripts.exactly_once.account import Account
from scripts.exactly_once.ways import GLOBAL_BATCH, Way
from scripts.labcluster.fleet import PLANNED


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
    words = [f"{one.way.name}: {one.wrong}" for one in results if one.wrong]
    legend = (
        "samples: lost (asked for, not in the model), twice (in the model once more than asked\n"
        "for), again (thrown away by a restart and trained again; planned: of these at joins and\n"
        "planned leaves); rate off: largest distance of the learning rate from that of the\n"
        "unchanged run at the same sample, of its highest"
    )
    heads = ("", "lost", "twice", "again", "planned", "in all", "of", "rate off", "loss", "ended")
    return "\n".join([legend, table([heads, *map(_row, results)]), *words])


def _row(one: Result) -> list[str]:
    """Return its cells; where steps are asked for, no sample is lost or trained twice."""
    cells, found = ["-"] * 8, one.found
    if found is not None:
        counts = found.lost, found.twice, found.again, found.planned, found.trained, found.asked
        cells = [*(f"{count:,}" for count in counts), f"{found.rate_off:.3f}"]
        cells.append("-" if found.loss is None else f"{found.loss:.5f}")
    for place in (0, 1, 5) if one.asked_steps else ():
        cells[place] = "-"
    return [one.way.title, *cells, one.ended]


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
