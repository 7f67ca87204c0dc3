"""The page, the JSON and ``docs/paper.md`` hold what the tables hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.paper.catalogue import Experiment
from experiments.paper.report import Report, refresh_page, write_report
from experiments.paper.runs import papers
from experiments.paper.tables import over
from scripts.benchkit.machine import Machine
from tests.paper.made import RESULTS, RUN

TABLE = over("name", "Title", "", {"a": RUN}, {"ours": lambda run: run, "paper": papers})


@pytest.fixture
def report() -> Report:
    machine = Machine("2026-01-01", 2, "a processor", 0.5, {"Python": "3.11"})
    return Report([Experiment(1, "Title", "About.", (TABLE,))], RESULTS, machine)


def test_the_page_has_the_tables(report: Report, tmp_path: Path) -> None:
    page = write_report(report, tmp_path / "new")
    assert "| ours | 0.850 |" in page
    assert (tmp_path / "new" / "paper.md").read_text() == page + "\n"


def test_the_page_says_how_many_plans_were_proven(report: Report, tmp_path: Path) -> None:
    assert "13 optimal" in write_report(report, tmp_path)


def test_the_json_has_figures_and_every_run(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path)
    document = json.loads((tmp_path / "paper.json").read_text())
    rows = document["tables"][0]["rows"]
    assert [(row["label"], row["values"]) for row in rows] == [("ours", [0.85]), ("paper", [0.8])]
    assert len(document["runs"]) == 3
    assert document["commits"] == ["abc"]


def test_a_page_of_the_docs_keeps_its_words_and_gets_new_figures(
    report: Report, tmp_path: Path
) -> None:
    page = tmp_path / "paper.md"
    page.write_text(
        "Words.\n<!-- made -->\n<!-- end -->\n<!-- table name -->\nold\n<!-- end -->\n"
        "![x](figures/paper-name.svg)\n<!-- table other -->\nkept\n<!-- end -->\n"
    )
    for _ in range(2):
        refresh_page(page, report)
    text = page.read_text()
    assert text.startswith("Words.\n<!-- made -->\n2026-01-01: 2 cores")
    assert text.count("| ours | 0.850 |") == 1
    assert "old" not in text
    assert "kept" in text
    assert (tmp_path / "figures" / "paper-name.svg").read_text().count("<svg") == 1
