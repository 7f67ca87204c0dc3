"""``scripts/run paper`` as it is called."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.paper.catalogue import QUICK
from experiments.paper.command import main
from experiments.paper.replays import SUMMIT

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not SUMMIT.is_dir(), reason=f"no trace in {SUMMIT}"),
]


def test_quick_makes_a_report_and_a_second_call_runs_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicker = replace(QUICK[0], nodes=64, hours=1.0)
    monkeypatch.setattr("experiments.paper.command.QUICK", (quicker,))
    again = ["--quick", "--only", "4", "--jobs", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, again)
    assert done.exit_code == 0, done.output
    assert "### From the paper's model" in done.stdout
    assert re.search(r"Plans: .*\d optimal", done.stdout)

    results = tmp_path / "results.json"
    before = json.loads(results.read_text())
    results.write_text(json.dumps(before[1:]))
    done = CliRunner().invoke(main, [*again, "--json"])
    steps = json.loads(done.stdout)["tables"][0]["rows"]
    assert all(row[0] <= steps["rescaling free (U_free)"][0] for row in steps.values())
    after = json.loads(results.read_text())
    assert after[:-1] == before[1:]
    assert after[-1]["run"] == before[0]["run"]
    assert after[-1]["result"]["samples"] == before[0]["result"]["samples"]
