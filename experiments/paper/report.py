"""What ``make paper`` found: a page in Markdown, its JSON, and tables of docs/internals/paper.md.

In that page the words are written by hand. A table goes between ``<!-- table NAME -->`` and
``<!-- end -->``, what was run on between ``<!-- made -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.paper.catalogue import Experiment, runs_of
from experiments.paper.runs import Results
from scripts.benchkit.command import replace_file
from scripts.benchkit.machine import Machine

_PLACE = re.compile(r"<!-- (?:table )?([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def page(chosen: Sequence[Experiment], results: Results, machine: Machine) -> str:
    """Return what experiments found, in Markdown."""
    lines = ["# The BFTrainer paper's experiments, repeated", "", made(chosen, results, machine)]
    for one in chosen:
        lines += ["", f"## {one.number}. {one.title}", "", one.about]
        for table in one.tables:
            lines += ["", f"### {table.title}", "", table.markdown(results)]
    return "\n".join(lines)


def made(chosen: Sequence[Experiment], results: Results, machine: Machine) -> str:
    """Return how, when and where the results were made."""
    found = [results[run] for run in runs_of(chosen)]
    counts = sum((Counter(one.plans) for one in found), Counter[str]())
    plans = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    return (
        f"{machine}. {sum(one.seconds for one in found) / 3600:.1f} hours of replays on one core, "
        f"by version {', '.join(sorted({one.commit for one in found}))}. Plans: {plans}."
    )


def document(chosen: Sequence[Experiment], results: Results, machine: Machine) -> dict[str, Any]:
    """Return all tables, and every run with its result, for JSON."""
    return {
        "machine": machine,
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": table.columns,
                "rows": table.values(results),
            }
            for one in chosen
            for table in one.tables
        ],
        "runs": [{"run": run, "result": results[run]} for run in runs_of(chosen)],
    }


def renew(docs: Path, chosen: Sequence[Experiment], results: Results, machine: Machine) -> None:
    """Renew what a page of the documentation has of these experiments. Raises OSError."""
    new = {table.name: table.markdown(results) for one in chosen for table in one.tables}
    new["made"] = made(chosen, results, machine)

    def renewed(place: re.Match[str]) -> str:
        begin = place[0].partition("\n")[0]
        return f"{begin}\n{new[place[1]]}\n<!-- end -->" if place[1] in new else place[0]

    replace_file(docs, _PLACE.sub(renewed, docs.read_text(encoding="utf-8")))
