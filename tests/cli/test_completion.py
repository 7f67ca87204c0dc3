"""What is completed at a tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.endpoint import Endpoint, complete


def test_a_tab_completes() -> None:
    """As what click writes for bash asks at a tab."""
    words = {"COMP_WORDS": "bftrainer replay --policy eq", "COMP_CWORD": "3"}
    asks = {"_BFTRAINER_COMPLETE": "bash_complete", **words}
    program = Path(sys.executable).parent / "bftrainer"
    told = subprocess.check_output([program], env=os.environ | asks, text=True)
    assert told == "plain,equal-share\n"


def completed(begun: str) -> list[str]:
    show = main.get_command(click.Context(main), "show")
    assert show is not None
    return [item.value for item in complete(click.Context(show), show.params[0], begun)]


def test_trainers_are_completed_by_job_id_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ((12, "digits"), (13, "resnet 50"), (25, "dig-deeper"))
    trainers = [{"array": array, "name": name, "state": "running"} for array, name in names]
    monkeypatch.setattr(Endpoint, "read_status", lambda _: (0.0, {"trainers": trainers}))
    assert (completed("1"), completed("dig")) == (["12", "13"], ["digits", "dig-deeper"])
    assert completed("res") == []  # a name with a blank is several words to a shell
    for damaged in (None, {}, {"trainers": 3}):
        monkeypatch.setattr(Endpoint, "read_status", lambda _, told=damaged: (0.0, told))
        assert completed("") == []
