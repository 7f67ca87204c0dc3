"""docs/internals/json.md and what the commands print say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import main, simulation
from bftrainer_slurm.cli.doctor import document as findings_document
from bftrainer_slurm.cli.explain import as_document
from bftrainer_slurm.cli.status import entry_from_slurm
from bftrainer_slurm.doctor.finding import conf, must
from bftrainer_slurm.doctor.trial import Outcome
from tests.cli.documented import PAGE, differences, documented
from tests.cli.documents import ON_TIME, SHOWN
from tests.cli.pasts import write_past
from tests.controller.worlds import trainer
from tests.replay.assessment.standin import equal_shares

STATUS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "status.json").read_text()
)
GPU_JOBS = """JobID|NNodes|Submit|Start|End|State|AllocTRES|NodeList
1|2|900|900|1200|COMPLETED|gres/gpu=4|n[1-2]
2|1|900|1500|4600|COMPLETED|gres/gpu=1|n1
3|1|900|1300|1900|COMPLETED|gres/gpu=2|n2
4|1|900|4500|5000|COMPLETED|gres/gpu=2|n2
no job
"""
DOWN: dict[str, Any] = {
    "time_s": 1.0,
    "down": "the controller is not running",
    "controller": None,
    "pool": None,
    "plan": None,
    "preempted": None,
    "malformed": {"7": "no spec"},
    "trainers": [entry_from_slurm(trainer())],
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
    return dict(json.loads(result.stdout))


def test_of_the_status() -> None:
    gpus = {"left": 20, "used": 12, "starting": 0, "planned": 12}
    plan, pool = {"status": "greedy", "reason": "no solver"}, STATUS["pool"] | {"gpus": gpus}
    greedy = STATUS | {"plan": STATUS["plan"] | plan, "pool": pool}
    unread = {"slurm": [], "refusals": []}  # what was recorded is older
    more = {"mute_nodes": ["n9"], "stopped_pass": {"tried": 500, "left": 253}}
    mute = STATUS | {"controller": STATUS["controller"] | unread} | more
    documents = ({"schema": 1, **one} for one in (STATUS, DOWN, greedy, mute))
    assert differences("status", *documents) == []


def test_of_trainers_whoever_knows_them() -> None:
    failed = SHOWN | {"output": {"path": "/home/alice/12_0.out", "lines": ["boom"]}}
    told = [
        *STATUS["trainers"],
        *DOWN["trainers"],
        failed | {"notice": None, "steps": 5.0},
    ]
    assert differences("show", *({"schema": 1, "down": None, **one} for one in told)) == []


def test_of_reasons() -> None:
    told = [as_document(one, STATUS | {"down": None}) for one in STATUS["trainers"]]
    planned = next(one for one in STATUS["trainers"] if one.get("plan"))
    due = {"deadline": ON_TIME, "by_s": 1_796_112_000.0, "wanted_samples": 2e6}
    of_parts = planned | due | {"gpus": 2, "plan": planned["plan"] | {"gpus": 2}}
    gpus = {"left": 20, "used": 12, "starting": 0, "planned": 12}
    shared = STATUS | {"down": None, "pool": STATUS["pool"] | {"gpus": gpus}}
    told += [as_document(of_parts, shared), as_document(DOWN["trainers"][0], DOWN)]
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
    change = conf("PreemptType", "preempt/partition_prio")
    finding = must("preemption", "PreemptType is none", "why", change)
    assert differences("doctor", findings_document([finding])) == []


def test_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(
        "bftrainer_slurm.doctor.trial.run", lambda _: Outcome("n1", 1.3, 0.31, 0.19)
    )
    assert differences("doctor --try", printed("doctor", "--try", "--json")) == []


def test_of_a_plan(tmp_path: Path) -> None:
    from tests.planner.test_plan_command import MOVES, written

    assert differences("plan", printed("plan", str(written(tmp_path, MOVES)), "--json")) == []


def test_of_a_replay() -> None:
    told = printed("replay", "--synthetic", "20:0.9", "--hours=1", "--json")
    assert differences("replay", told) == []


def test_of_an_assessment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "harvest", equal_shares)
    log = tmp_path / "jobs.txt"
    log.write_text(GPU_JOBS)
    told = (
        printed(
            *("assess", str(log), "--from=1000", "--to=4600", "--price=2", "--watts=3"),
            *("--samples=1", "--json"),
        ),
        printed("assess", "--synthetic=20:0.9", "--days=1", "--no-replay", "--json"),
    )
    assert differences("assess", *told) == []


def test_every_list_of_the_page_says_which_schema_it_is_of() -> None:
    sections = [part.partition("\n") for part in PAGE.read_text().split("\n## ")[1:]]
    with_keys = [(name, text) for name, _, text in sections if "\n- `" in text]
    assert len(with_keys) == 12
    for name, text in with_keys:
        assert "- `schema` (whole): 1" in text, name
        assert documented(name)[0].path == ("schema",)
