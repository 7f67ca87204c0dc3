"""docs/internals/files.md, and what the commands read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import Struct, structs

from bftrainer_slurm.cli import main, simulation
from bftrainer_slurm.planner.instance import ClassData, Instance, TrainerData, read_instance
from bftrainer_slurm.replay.trainers import TrainerData as ReplayedTrainer
from bftrainer_slurm.replay.trainers import read_trainers
from scripts.labcluster.stage import REPO
from tests.cli.documented import documented
from tests.replay.assessment.standin import equal_shares

PAGE = REPO / "docs" / "internals" / "files.md"
EXAMPLES = REPO / "examples" / "plan"


def keys_of(kind: type[Struct], prefix: str = "") -> dict[str, bool]:
    """Return the keys of an object, and whether each may be left out."""
    return {f"{prefix}{one.encode_name}": not one.required for one in structs.fields(kind)}


def keys_in(section: str) -> dict[str, bool]:
    return {
        ".".join(key.path).replace(".[]", "[]"): key.may_miss for key in documented(section, PAGE)
    }


def test_the_page_has_the_keys_of_trainers() -> None:
    assert keys_in("Trainers") == keys_of(ReplayedTrainer)


def test_the_page_has_the_keys_of_a_problem() -> None:
    of_parts = keys_of(TrainerData, "trainers[].") | keys_of(ClassData, "classes[].")
    assert keys_in("A planning problem") == keys_of(Instance) | of_parts


def test_the_page_shows_the_examples_and_they_can_be_read() -> None:
    shown = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown == [
        (EXAMPLES / name).read_text() for name in ("trainers.json", "two-trainers.json")
    ]
    assert len(read_trainers(EXAMPLES / "trainers.json")) == 2
    assert len(read_instance(EXAMPLES / "two-trainers.json").trainers) == 2


def test_the_commands_of_the_page_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "harvest", equal_shares)
    commands = re.findall("^    bftrainer (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 2
    for words in commands:
        command = [str(REPO / one) if one.startswith("examples") else one for one in words.split()]
        shorter = ["--days", "0.1"] if command[0] == "assess" else ["--hours", "1"]
        result = CliRunner().invoke(main, [*command, *shorter])
        assert result.exit_code == 0, result.output


def trainers(folder: Path, **more: Any) -> list[str]:
    document = json.loads((EXAMPLES / "trainers.json").read_text())
    (folder / "file").write_text(json.dumps([document[0], document[1] | more]))
    return ["replay", "--synthetic", "5", "--trainers", str(folder / "file")]


def problem(folder: Path, **more: Any) -> list[str]:
    document = json.loads((EXAMPLES / "two-trainers.json").read_text())
    (folder / "file").write_text(json.dumps(document | more))
    return ["plan", str(folder / "file")]


@pytest.mark.parametrize(("arguments", "place"), [(trainers, "[1]: "), (problem, "")])
def test_a_key_that_nobody_knows_is_refused_with_those_there_are(
    arguments: Any, place: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, arguments(tmp_path, **{"step\x1b[2J": 1}))
    assert result.exit_code == 2
    assert f"{place}unknown key 'step?[2J'; there are " in result.stderr
    assert result.stderr.count("\n") == 1
    known = result.stderr.strip().partition("; there are ")[2].split(", ")
    assert known == list(keys_of(Instance if arguments is problem else ReplayedTrainer))


def test_a_key_that_looks_like_a_place_is_refused_too(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, problem(tmp_path, **{"x` - at `$.y": 1}))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_problem_may_come_from_the_standard_input() -> None:
    command = [sys.executable, "-m", "bftrainer_slurm", "plan", "-", "--problem"]
    problem = (EXAMPLES / "two-trainers.json").read_bytes()
    done = subprocess.run(command, input=problem, capture_output=True, check=True)
    assert len(json.loads(done.stdout)["trainers"]) == 2
