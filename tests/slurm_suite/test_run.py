"""Slurm's own tests beside trainers: how they are run and compared. Theirs are not among ours."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from scripts.benchkit.command import RefusedError
from scripts.labcluster.cluster import installed_version
from scripts.labcluster.lab import Lab
from tests.installed_slurm import slurm_is_missing
from tests.slurm_suite.command import findings, main
from tests.slurm_suite.run import SuiteError, Verdicts, check_source, compare, run_suites

# A testsuite of one test, that passes where SIDE says so.
REGRESSION = """
import json, os, sys
assert sys.argv[1:4] == ["-k", "-i", "1.5"], sys.argv
print("Running test 1.5", flush=True)
verdict = os.environ["SIDE"]
if verdict != "none":
    json.dump([{"id": "1.5", "status": verdict}], open(sys.argv[5], "w"))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What looks like Slurm's source, of the version that is installed here."""
    tests = tmp_path / "source" / "testsuite" / "expect"
    tests.mkdir(parents=True)
    (tests / "regression.py").write_text(REGRESSION)
    (tests / "globals").write_text("if {[llength [get_nodes_by_state]] < 1} {\n\tskip\n}\n")
    return tmp_path / "source"


def lab(folder: Path, verdict: str) -> Lab:
    """Of a cluster no more than its folder and its users' environment."""
    folder.mkdir()
    cluster = cast(Any, SimpleNamespace(folder=folder))
    return Lab(cluster, {**os.environ, "SIDE": verdict})


def test_each_cluster_runs_a_copy_of_the_suite_and_its_verdicts_are_told(
    source: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    labs = {"without": lab(tmp_path / "a", "pass"), "with": lab(tmp_path / "b", "fail")}
    found = run_suites(source / "testsuite" / "expect", "1.5", labs, said.append)
    assert found == {"without": {"1.5": "pass"}, "with": {"1.5": "fail"}}
    copied = tmp_path / "a" / "suite" / "expect" / "globals"
    assert "get_nodes_by_state" not in copied.read_text()
    assert "get_nodes_by_state" in (source / "testsuite" / "expect" / "globals").read_text()


def test_a_suite_that_does_not_come_to_its_end_is_an_error(source: Path, tmp_path: Path) -> None:
    labs = {"without": lab(tmp_path / "a", "none")}
    with pytest.raises(SuiteError, match="left no results"):
        run_suites(source / "testsuite" / "expect", "1.5", labs, print)


def test_verdicts_are_compared_test_by_test_in_the_order_of_their_numbers() -> None:
    plain = {"1.10": "pass", "1.9": "skip", "2.1": "fail"}
    assert compare(plain, {"1.10": "pass", "1.9": "skip"}) == [
        Verdicts("1.9", "skip", "skip"),
        Verdicts("1.10", "pass", "pass"),
        Verdicts("2.1", "fail", "none"),
    ]


def test_only_a_verdict_that_differs_is_wrong() -> None:
    same, other = Verdicts("1.1", "fail", "fail"), Verdicts("1.2", "pass", "fail")
    assert findings([same], 3).wrong == ""
    found = findings([same, other], 3)
    assert found.wrong == "1 verdicts differ"
    assert found.text.splitlines()[-1].split() == ["1.2", "pass", "fail"]


def test_a_folder_without_slurms_source_is_refused_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--source", str(tmp_path)])
    assert done.exit_code == 2
    assert done.output.splitlines() == [
        f"Error: --source {tmp_path}: no source tree of Slurm (META, testsuite/expect)"
    ]


@pytest.mark.skipif(slurm_is_missing() is not None, reason="needs an installed Slurm")
def test_the_source_of_another_version_is_refused(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/sbin/{name}")
    (source / "META").write_text("  Version:\t2.6.1\n")
    with pytest.raises(RefusedError, match="not the Slurm"):
        check_source(source)
    here = installed_version()
    (source / "META").write_text(f"  Version:\t{here[0]}.{here[1]:02}.0\n")
    assert check_source(source) == source / "testsuite" / "expect"
