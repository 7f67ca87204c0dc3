"""The command itself; and faults on a real cluster with real training."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.chaos.command import main
from tests.tools import run_tool

# Each of these once; `make chaos` has the others, and all of them again and again. Controller and
# keeper are killed, and scripts requeue themselves, in controller/whole_nodes; workers and agents
# are killed in elastic; what is held stays held in security/test_comments.
OFTEN = ("slurmctld-killed", "slurmd-killed", "node-vanishes", "node-dies", "element-killed")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to be several users")


def test_without_root_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    refused = CliRunner().invoke(main, [])
    assert refused.exit_code == 2
    assert refused.output == "chaos: needs root: it is several users, and cuts nodes off\n"


@as_root
@pytest.mark.slurm
@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.once
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (["--minutes=0", "--double=0", *(f"--fault={one}" for one in OFTEN)], OFTEN),
        (["--failover=1"], ("host-dies",)),
    ],
    ids=["what breaks most often", "the first of two control hosts"],
)
def test_trainers_survive(words: list[str], faults: tuple[str, ...], tmp_path: Path) -> None:
    done = run_tool("chaos", "--seed=1", "--json", f"--keep={tmp_path}", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    injected = [name for one in document["outcomes"] for name in one["faults"]]
    assert sorted(injected) == sorted(faults)
    assert (document["violations"], document["trainers_lost"]) == (0, 0)
    assert all(steps > 0 for steps in document["steps"].values())
    assert not list(tmp_path.iterdir())  # nothing to explain
