"""docs/internals/json.md and what the commands print say the same."""

from __future__ import annotations

import json
import shlex
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
from scripts.labcluster.stage import REPO
from tests.cli.documented import differences
from tests.cli.documents import ON_TIME, SHOWN, STATUS
from tests.cli.pasts import write_past
from tests.controller.worlds import trainer
from tests.replay.assessment.standin import a_share

# As a controller publishes it, on nodes that jobs share, with all that may be said.
SHARED = STATUS | {
    "pool": STATUS["pool"] | {"gpus": {"left": 20, "used": 12, "starting": 0, "planned": 12}},
    "plan": STATUS["plan"] | {"status": "greedy", "reason": "no solver"},
    "controller": STATUS["controller"] | {"slurm": [], "refusals": []},
    "mute_nodes": ["n9"],
    "stopped_pass": {"tried": 500, "left": 253},
    "down": None,
}
DOWN: dict[str, Any] = {
    "time_s": 1.0,
    "down": "the controller is not running",
    "malformed": {"7": "no spec"},
    "trainers": [entry_from_slurm(trainer())],
    **dict.fromkeys(("controller", "pool", "plan", "preempted")),
}
GPU_JOBS = """JobID|NNodes|Submit|Start|End|State|AllocTRES|NodeList
1|2|900|900|1200|COMPLETED|gres/gpu=4|n[1-2]
2|1|900|1500|4600|COMPLETED|gres/gpu=1|n1
3|1|900|1300|1900|COMPLETED|gres/gpu=2|n2
4|1|900|4500|5000|COMPLETED|gres/gpu=2|n2
no job
"""
COMMANDS = {
    "history": ["history --state ."],
    "history TRAINER": ["history 12 --state .", "history 12 --since 20m --state ."],
    "doctor --try": ["doctor --try"],
    "plan": [f"plan {REPO}/examples/plan/two-trainers.json"],
    "replay": ["replay --synthetic 20:0.9 --hours 1"],
    "assess": [
        "assess jobs.txt --from 1000 --to 4600 --price 2 --watts 3 --samples 1",
        "assess --synthetic 20:0.9 --days 1 --no-replay",
    ],
}


def test_of_the_status() -> None:
    assert differences("status", *({"schema": 1, **one} for one in (STATUS, DOWN, SHARED))) == []


def test_of_trainers_whoever_knows_them() -> None:
    failed = SHOWN | {"output": {"path": "/home/alice/12_0.out", "lines": ["boom"]}}
    told = [*STATUS["trainers"], *DOWN["trainers"], failed | {"notice": None, "steps": 5.0}]
    assert differences("show", *({"schema": 1, "down": None, **one} for one in told)) == []


def test_of_reasons() -> None:
    due = SHOWN | {"deadline": ON_TIME, "gpus": 2, "plan": SHOWN["plan"] | {"gpus": 2}}
    told = [as_document(one, SHARED) for one in (*STATUS["trainers"], due)]
    assert differences("explain", *told, as_document(DOWN["trainers"][0], DOWN)) == []


def test_of_findings() -> None:
    change = conf("PreemptType", "preempt/partition_prio")
    finding = must("preemption", "PreemptType is none", "why", change)
    assert differences("doctor", findings_document([finding])) == []


@pytest.mark.parametrize("section", COMMANDS)
def test_of_what_is_printed(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(simulation, "harvest", a_share)
    outcome = Outcome("n1", 1.3, 0.31, 0.19)
    monkeypatch.setattr("bftrainer_slurm.doctor.trial.run", lambda _: outcome)
    Path("jobs.txt").write_text(GPU_JOBS)
    write_past(tmp_path)
    told = []
    for words in COMMANDS[section]:
        result = CliRunner().invoke(main, [*shlex.split(words), "--json"])
        assert result.exit_code == 0, result.output
        told.append(json.loads(result.stdout))
    if section.startswith("history"):  # as who sees less is told
        (told[0].get("trainer") or told[0]["trainers"][0])["hidden"] = True
    assert differences(section, *told) == []
