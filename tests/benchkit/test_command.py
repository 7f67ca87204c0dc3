"""How every bench answers, whatever it measures."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path

import click
import pytest
from click.testing import CliRunner

from scripts.benchkit.command import (
    Findings,
    RefusedError,
    bench_command,
    folder,
    number,
    replace_file,
    several,
)
from scripts.benchkit.figures import at_most
from scripts.labcluster.stage import REPO
from tests.tools import run_tool


class BrokenError(Exception):
    """Made for this test."""


@bench_command(BrokenError)
@click.argument("what", default="")
def bench(what: str) -> Findings:
    if what == "broken":
        raise BrokenError("it does not train")
    if what == "child":
        failing = ["sh", "-c", "echo no such job >&2; exit 3"]
        subprocess.run(failing, check=True, stderr=subprocess.PIPE, text=True)
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGTERM)
    return Findings("a table", [at_most("pause", 1.0, 2.0), Path("x")], what)


@bench_command()
@number("--whole", 5, 1, 9, "A number.")
@number("--part", 0.5, 0, 1)
@several("--colour", "colours", {"red": 1, "blue": 2}, "Of this colour.")
@folder("--out", "out", "For the results.", Path("output"))
def options(whole: int, part: float, **others: object) -> Findings:
    if whole == 9:
        raise RefusedError("there is no nine here")
    return Findings("", {"whole": whole, "part": part, **others})


@pytest.fixture(autouse=True)
def own_signals() -> object:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_it_prints_text_or_json() -> None:
    assert CliRunner().invoke(bench).output == "a table\n"
    found = json.loads(CliRunner().invoke(bench, "--json").output)
    assert found == [{"text": "pause", "found": 1.0, "asked": "<= 2", "met": True}, "x"]


def test_what_is_wrong_is_said_after_the_findings() -> None:
    done = CliRunner().invoke(bench, "DIFFER")
    assert (done.exit_code, done.output) == (1, "a table\nError: DIFFER\n")


@pytest.mark.parametrize("bad", ["--whole=0", "--whole=1.5", "--part=1.1", "--colour=green"])
def test_what_is_out_of_bounds_or_unknown_is_refused(bad: str) -> None:
    done = CliRunner().invoke(options, [bad])
    assert done.exit_code == 2
    assert bad.partition("=")[0] in done.output


def test_what_cannot_be_had_here_is_refused_in_one_line() -> None:
    done = CliRunner().invoke(options, ["--whole=9"])
    assert (done.exit_code, done.output) == (2, "Error: there is no nine here\n")


@pytest.mark.parametrize(
    ("what", "words"), [("broken", "it does not train"), ("child", "no such job")]
)
def test_an_error_is_told_in_one_line(what: str, words: str) -> None:
    done = CliRunner().invoke(bench, what)
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert done.output.endswith(f"{words}\n")
    assert done.output.count("\n") == 1


def test_sigterm_is_taken_as_ctrl_c_whose_exit_code_is_130() -> None:
    done = CliRunner().invoke(bench, "stopped")
    assert (done.exit_code, done.output.count("\n")) == (130, 1)


TOOLS = ("bench-scale", "chaos", "paper")


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_run_by_its_name(name: str) -> None:
    done = run_tool(name, "--help")
    assert done.stdout.startswith(f"Usage: run {name} ")


BAD = (
    *(("bench-impact", words) for words in ("--jobs=0", "--nodes=1", "--seed=x", "--load=0.06")),
    *(("bench-impact", words) for words in ("--set=x", "--gpus=17", "more")),
    ("bench-planner", "--limit=0"),
    ("bench-scale", "--nodes=99"),
    *(("chaos", words) for words in ("--fault=no-such", "--minutes=-1", "--failover=-1")),
    ("chaos", "--seed=x"),
    *(("fuzz", words) for words in ("--target=nothing", "--seconds=0", "--seed=-1", "now")),
    ("lanes", "fast"),
    ("paper", "--quick --out=."),  # whose results cannot be read
)


@pytest.mark.parametrize(("name", "words"), BAD)
def test_a_bad_call_is_refused_in_one_line(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results.json").write_text("nonsense")
    monkeypatch.chdir(tmp_path)
    tools = run_path(str(REPO / "scripts" / "run"))["TOOLS"]
    done = CliRunner().invoke(import_module(tools[name]).main, words.split())
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.splitlines()[-1].startswith(("Error: ", "paper: "))
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("name", ["", "no-such"])
def test_a_tool_that_there_is_not_is_refused_with_the_names_of_all(name: str) -> None:
    done = run_tool(name)
    assert done.returncode == 2
    assert all(one in done.stderr for one in TOOLS)
    assert done.stderr.count("\n") == 1


def outside(*command: object) -> subprocess.CompletedProcess[str]:
    """Run with a Python that has no packages of ours, as who has not activated .venv."""
    python = Path(sys.base_prefix) / "bin" / "python3"
    return subprocess.run([python, *map(str, command)], capture_output=True, text=True)


def test_a_tool_finds_the_projects_own_python() -> None:
    done = outside(REPO / "scripts" / "run", "bench-scale", "--help")
    assert done.stdout.startswith("Usage: run bench-scale ")


def test_without_the_projects_python_a_tool_says_how_to_have_it(tmp_path: Path) -> None:
    run = tmp_path / "scripts" / "run"
    replace_file(run, (REPO / "scripts" / "run").read_text())
    done = outside(run, "bench-scale")
    assert done.returncode == 2
    assert done.stderr == "scripts/run: the tools need Python packages: run make setup\n"


def test_makes_targets_run_tools_that_there_are() -> None:
    made = re.findall(r"scripts/run ([a-z-]+)", (REPO / "Makefile").read_text())
    known = run_tool("").stderr.partition("the names: ")[2].strip().split(", ")
    assert set(made) == set(known)
