"""What is said to who calls a command wrongly, or where nobody answers: screens/refusals.txt."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO
from tests.approved import approve_commands

EXAMPLES = REPO / "examples" / "plan"
FILE = Path(__file__).parent / "screens" / "refusals.txt"
LOG = "JobID|NNodes|Submit|Start|End|State|NodeList\n1|2|900|900|1200|COMPLETED|n[1-2]\n"
EVENTS = "time,node,idle\n0,a,true\n0,b,true\n1800,b,false\n3600,a,false\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the commands name, and no Slurm."""
    (here := tmp_path / "here").mkdir()
    (home := tmp_path / "home").mkdir()
    for name, text in {"jobs.txt": LOG, "events.csv": EVENTS, "bad.json": "{"}.items():
        (here / name).write_text(text)
    (here / "train.sh").write_text("#!/bin/sh\nsrun torchrun train.py\n")
    plan, trainers = (
        json.loads((EXAMPLES / name).read_text()) for name in ("two-trainers.json", "trainers.json")
    )
    documents = {
        "late.json": [trainers[0] | {"submit": 9999}],
        "evil-key.json": [trainers[0], trainers[1] | {"step\x1b[2J": 1}],
        "key-like-a-place.json": plan | {"x` - at `$.y": 1},
    }
    for name, document in documents.items():
        (here / name).write_text(json.dumps(document))
    (here / "program").write_bytes(b"\x7fELF\xff\xfe\x00")
    os.mkfifo(here / "pipe")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", str(home))
    return here


def test_each_is_refused_as_approved_and_leaves_nothing(here: Path) -> None:
    before = sorted(here.iterdir())
    approve_commands(FILE, EVIL="\x1b[2Jev\x9bil\u202e\udcff", LONG="x" * 300)
    assert (here / "jobs.txt").read_text() == LOG
    assert sorted(here.iterdir()) == before


def test_a_refusal_is_one_line_and_an_exit_code() -> None:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    said = "\n".join(lines).split("$ bftrainer ")[1:]
    assert len(said) > 80
    for command, message, code in (one.strip().splitlines() for one in said):
        assert message.startswith(("bftrainer", "keeper: ")), command
        assert message.isprintable(), command
        assert code in ("[2]", "[3]"), command
