"""docs/internals/files.md, and what the commands read."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from msgspec import structs

from bftrainer_slurm.cli import main, simulation
from bftrainer_slurm.planner.instance import ClassData, Instance, TrainerData
from bftrainer_slurm.replay.trainers import TrainerData as ReplayedTrainer
from scripts.labcluster.stage import REPO
from tests.cli.documented import documented
from tests.replay.assessment.standin import a_share

PAGE = REPO / "docs" / "internals" / "files.md"
EXAMPLES = REPO / "examples" / "plan"


def test_the_page_has_the_keys_of_trainers_and_of_a_problem() -> None:
    problem = documented("A planning problem", PAGE)
    sections = {
        ReplayedTrainer: documented("Trainers", PAGE),
        Instance: problem,
        TrainerData: problem.below["trainers"],
        ClassData: problem.below["classes"],
    }
    for kind, key in sections.items():
        may_miss = {one.encode_name: not one.required for one in structs.fields(kind)}
        assert {name: one.may_miss for name, one in key.below.items()} == may_miss, kind


def test_the_page_shows_the_examples() -> None:
    shown = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = ("trainers.json", "two-trainers.json")
    assert shown == [(EXAMPLES / name).read_text() for name in names]


def test_the_commands_of_the_page_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "harvest", a_share)
    commands = re.findall("^    bftrainer (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 2
    for words in commands:
        command = [str(REPO / one) if one.startswith("examples") else one for one in words.split()]
        shorter = ["--days", "0.1"] if command[0] == "assess" else ["--hours", "1"]
        result = CliRunner().invoke(main, [*command, *shorter])
        assert result.exit_code == 0, result.output


def test_a_problem_may_come_from_the_standard_input() -> None:
    command = [sys.executable, "-m", "bftrainer_slurm", "plan", "-", "--problem"]
    problem = (EXAMPLES / "two-trainers.json").read_bytes()
    done = subprocess.run(command, input=problem, capture_output=True, check=True)
    assert len(json.loads(done.stdout)["trainers"]) == 2
