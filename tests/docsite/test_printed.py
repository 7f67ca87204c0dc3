"""What pages say that a command prints is what it prints, or says when that was."""

from __future__ import annotations

import re
import shlex
from functools import partial

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import main
from bftrainer_slurm.planner import solver
from scripts.labcluster.stage import REPO

# With the paragraphs before and after it. "..." are any lines.
_BLOCK = re.compile(
    r"((?:.+\n)*)\n*^```\n\$ ((?:.*\\\n)*.*)\n((?:.*\n)*?)```\n\n?((?:.+\n)*)", re.MULTILINE
)
_REPEATABLE = re.compile(r"bftrainer (?:plan [^-]|(?:replay|assess) --synthetic)")
_SUMMARY = re.compile(r"^10 trainers (?:.+\n)*", re.MULTILINE)
_REPLAYED = re.compile(r"\n*^replayed .*", re.MULTILINE | re.DOTALL)
_TOOK = re.compile(r"\d+\.\d+ (?:ms|s)(?= median| p95| at most|\), )")
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_FOUND = [
    (page.name, *found)
    for page in [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
    for found in _BLOCK.findall(page.read_text())
]
_ALWAYS = [(page, said[1], said[2]) for page, *said in _FOUND if _REPEATABLE.match(said[1])]
_AT_ONCE = [(*one, said) for *one, said in _ALWAYS if not said.startswith("...\n10 trainers ")]


def _pattern(said: str) -> str:
    lines = ["(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n" for line in said.split("\n")]
    return "".join(lines[:-1])


@pytest.mark.parametrize(("page", "command", "said"), _AT_ONCE)
def test_a_page_shows_what_the_command_prints(
    page: str, command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for how long plans took, and for assess's replays, which take minutes."""
    monkeypatch.chdir(REPO)
    patient = partial(solver.Planner, time_limit_s=300.0)  # on a slow machine, too, the best plan
    monkeypatch.setattr("bftrainer_slurm.cli.replay.Planner", patient)
    words = shlex.split(command)[1:]
    if words[0] == "assess":
        said = _REPLAYED.sub("\n...\n", _SUMMARY.sub("", said))
        words.append("--no-replay")
    elif words[0] == "plan":
        words += ["--time-limit", "300"]
    printed = CliRunner().invoke(main, words).stdout
    assert re.fullmatch(_pattern(_TOOK.sub("N s", said)), _TOOK.sub("N s", printed)), printed


def test_pages_say_the_same_of_a_command() -> None:
    whole = {command: said for _, command, said in _ALWAYS if not said.startswith("...")}
    parts = [(command, said[4:]) for _, command, said in _ALWAYS if said.startswith("...")]
    assert [said for command, said in parts if said not in whole.get(command, said)] == []


def test_what_a_command_printed_once_has_its_date() -> None:
    once = [found for found in _FOUND if not _REPEATABLE.match(found[2])]
    assert [page for page, *texts in once if not _DATE.search("".join(texts))] == []
    assert len(once) > 5
    assert {command.split()[1] for _, command, _ in _ALWAYS} == {"plan", "replay", "assess"}
