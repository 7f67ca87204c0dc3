"""The reference values of ``../shared/DESIGN.md``, beside the same replays here."""

from __future__ import annotations

from dataclasses import replace

from scripts.experiments import measures
from scripts.experiments.measures import Others, U
from scripts.experiments.runs import Run, papers
from scripts.experiments.tables import Cell, Row, Table
from scripts.experiments.variations import EQUAL_SHARE, at, method

EVENT_1000_S = 1612988526.0  # where the replays of DESIGN.md begin


def references(part: Run) -> Table:
    """DESIGN.md's independent replay of another seven days, beside the same here."""
    recorded: dict[str, tuple[float, Others]] = {
        "equal share, 10 at once": (0.761, EQUAL_SHARE),
        "paper's model, 10 s": (0.817, method("paper", forward_time_s=10.0)),
        "60 s": (0.835, method("paper", forward_time_s=60.0)),
        "120 s": (0.834, papers),
        "300 s": (0.837, method("paper", forward_time_s=300.0)),
        "600 s": (0.830, method("paper", forward_time_s=600.0)),
    }
    for count, equal, model in ((5, 0.658, 0.729), (20, 0.816, 0.888), (35, 0.836, 0.911)):
        recorded[f"equal share, {count} at once"] = (equal, at(count, EQUAL_SHARE))
        recorded[f"paper's model, 120 s, {count} at once"] = (model, at(count, papers))
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
