"""docs/json.md and what the commands print say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.doctor import document as findings_document
from bftrainer_slurm.cli.explain import as_document
from bftrainer_slurm.cli.status import known_to_slurm
from bftrainer_slurm.doctor.finding import Change, must
from tests.cli.documented import PAGE, differences, documented
from tests.cli.pasts import write_past
from tests.cli.test_commands import SHOWN
from tests.controller.worlds import trainer

STATUS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "status.json").read_text()
)
DOWN: dict[str, Any] = {
    "time_s": 1.0,
    "down": "the controller is not running",
    "controller": None,
    "pool": None,
    "plan": None,
    "preempted": None,
    "malformed": {"7": "no spec"},
    "trainers": [known_to_slurm(trainer())],
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    write_past(tmp_path)
    return tmp_path


def printed(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


def test_of_the_status() -> None:
    greedy = STATUS | {"plan": STATUS["plan"] | {"status": "greedy", "reason": "no solver"}}
    documents = ({"schema": 1, **one} for one in (STATUS, DOWN, greedy))
    assert differences("status", *documents) == []


def test_of_trainers_whoever_knows_them() -> None:
    failed = SHOWN | {"output": {"path": "/home/alice/12_0.out", "lines": ["boom"]}}
    told = [*STATUS["trainers"], *DOWN["trainers"], failed | {"notice": None, "steps": 5.0}]
    assert differences("show", *({"schema": 1, "down": None, **one} for one in told)) == []


def test_of_reasons() -> None:
    told = [as_document(one, STATUS | {"down": None}) for one in STATUS["trainers"]]
    told.append(as_document(DOWN["trainers"][0], DOWN))
    assert differences("explain", *told) == []


def test_of_the_history(state: Path) -> None:
    listed = printed("history", "--state", str(state), "--json")
    mine = printed("history", "12", "--state", str(state), "--json")
    recent = printed("history", "12", "--since", "20m", "--state", str(state), "--json")
    for one in (listed["trainers"][0], mine["trainer"]):
        one["hidden"] = True  # as who sees less is told
    assert differences("history", listed) == []
    assert differences("history TRAINER", mine, recent) == []


def test_of_findings() -> None:
    change = Change("slurm.conf", "PreemptType", "preempt/partition_prio")
    finding = must("preemption", "PreemptType is none", "why", change)
    assert differences("doctor", findings_document([finding])) == []


def test_of_a_plan(tmp_path: Path) -> None:
    from tests.planner.test_plan_command import MOVES, written

    assert differences("plan", printed("plan", str(written(tmp_path, MOVES)), "--json")) == []


def test_every_table_of_the_page_says_which_schema_it_is_of() -> None:
    sections = [part.partition("\n") for part in PAGE.read_text().split("\n## ")[1:]]
    with_keys = [(name, text) for name, _, text in sections if "| key |" in text]
    assert len(with_keys) == 9
    for name, text in with_keys:
        assert "`schema` is 1" in text, name
        assert documented(name)[0].path == ("schema",)
