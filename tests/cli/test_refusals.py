"""What is said to who calls a command wrongly, or where nobody answers: screens/refusals.txt."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from bftrainer_slurm.cli import files
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
    (here / "new.toml").write_text("reserves = 2\n")
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
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(files, "TemporaryFile", full)
    return here


def test_each_is_refused_as_approved_and_leaves_nothing(here: Path) -> None:
    before = sorted(here.iterdir())
    approve_commands(FILE, EVIL="\x1b[2Jev\x9bil\u202e\udcff", LONG="x" * 300)
    assert (here / "jobs.txt").read_text() == LOG
    assert sorted(here.iterdir()) == before


def test_a_refusal_is_one_line_and_an_exit_code() -> None:
    text = FILE.read_text()
    said = re.findall(r"^\$ bftrainer.*\n((?:bftrainer|keeper: ).*)\n\[[23]\]$", text, re.MULTILINE)
    assert len(said) == text.count("$ bftrainer ") > 80
    assert all(map(str.isprintable, said))
