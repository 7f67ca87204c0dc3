"""``scripts/run fuzz`` as a person calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from scripts.labcluster.stage import REPO


def fuzz(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPO / "scripts" / "run"), "fuzz", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_it_tells_what_it_has_tried() -> None:
    done = fuzz("--seconds", "1", "--target", "option", "--json")
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(done.stdout)
    assert outcome["target"] == "option"
    assert outcome["executions"] > 0
    assert outcome["crash"] is None


@pytest.mark.parametrize(
    "options", [("--target", "nothing"), ("--seconds", "0"), ("--seed", "-1"), ("now",)], ids=str
)
def test_a_bad_call_is_refused(options: tuple[str, ...]) -> None:
    done = fuzz(*options)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
