"""The reference values of ``../shared/DESIGN.md``, beside the same replays here."""

from __future__ import annotations

from dataclasses import replace

from scripts.experiments import measures
from scripts.experiments.measures import Others, U
from scripts.experiments.runs import Run, papers
from scripts.experiments.tables import Cell, Row, Table
from scripts.experiments.variations import EQUAL_SHARE, at

EVENT_1000_S = 1612988526.0  # where the replays of DESIGN.md begin
# Trainers at once; U of equal share, and of the paper's model with 120 s.
_AT_ONCE = ((5, 0.658, 0.729), (10, 0.761, 0.834), (20, 0.816, 0.888), (35, 0.836, 0.911))


def references(part: Run) -> Table:
    """DESIGN.md's independent replay of another seven days, beside the same here."""
    recorded: dict[str, tuple[float, Others]] = {}
    for count, equal, model in _AT_ONCE:
        recorded[f"equal share, {count} at once"] = (equal, at(count, EQUAL_SHARE))
        recorded[f"the paper's model, 120 s, {count} at once"] = (model, at(count, papers))
    late = replace(part, from_s=EVENT_1000_S)
    rows = tuple(
        Row(label, (value, Cell(vary(late), U), Cell(vary(part), U)))
        for label, (value, vary) in recorded.items()
    )
    columns = ("DESIGN.md: another 7 days", "from event 1000", "the whole week")
    title = "U of HPO trainers beside the reference values of DESIGN.md"
    pools = Row(
        "nodes in the pool, mean",
        (85.0, *(Cell(run, measures.POOL) for run in (papers(late), papers(part)))),
    )
    return Table("references", title, "", columns, (*rows, pools))
