"""Puts tables and pictures into ``docs/paper.md``: the words in it are written by hand.

A table goes between ``<!-- table NAME -->`` and ``<!-- end -->``, what was run on between
``<!-- made -->`` and ``<!-- end -->``; pictures go to ``figures/paper-NAME.svg``.
"""

from __future__ import annotations

import re
from pathlib import Path

from scripts.experiments.measures import Results
from scripts.experiments.pictures import picture
from scripts.experiments.report import Report, replace_file
from scripts.experiments.tables import Table

_PLACE = re.compile(r"<!-- (table ([\w-]+)|made) -->\n.*?<!-- end -->", re.DOTALL)


def refresh_page(page: Path, report: Report) -> None:
    """Renew the tables of a page that the report has, and their pictures. Raises OSError."""
    tables = {table.name: table for one in report.experiments for table in one.tables}

    def renewed(place: re.Match[str]) -> str:
        if place[1] == "made":
            text = _made(report)
        elif place[2] in tables:
            text = markdown(tables[place[2]], report.results)
        else:
            return place[0]
        return f"<!-- {place[1]} -->\n{text}\n<!-- end -->"

    before = page.read_text(encoding="utf-8")
    figures = page.parent / "figures"
    figures.mkdir(exist_ok=True)
    for name in set(re.findall(r"\(figures/paper-([\w-]+)\.svg\)", before)) & tables.keys():
        replace_file(figures / f"paper-{name}.svg", picture(tables[name], report.results))
    replace_file(page, _PLACE.sub(renewed, before))


def markdown(table: Table, results: Results) -> str:
    """Return a table in Markdown."""
    lines = [f"| {table.corner} | {' | '.join(table.columns)} |"]
    lines.append("|---" + "|---:" * len(table.columns) + "|")
    lines += [f"| {label} | {' | '.join(cells)} |" for label, cells in table.texts(results)]
    return "\n".join(lines)


def _made(report: Report) -> str:
    plans = ", ".join(f"{count:,} {status}" for status, count in report.plans().items())
    return (
        f"{report.machine}. {report.hours():.1f} hours of replays on one core, by version "
        f"{', '.join(report.commits())}. Plans: {plans}."
    )
