"""``scripts/run fuzz`` as a person calls it."""

from __future__ import annotations

import json

from tests.tools import run_tool


def test_it_tells_what_it_has_tried() -> None:
    done = run_tool("fuzz", "--seconds", "1", "--target", "option", "--json")
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(done.stdout)
    assert outcome["target"] == "option"
    assert outcome["executions"] > 0
    assert outcome["crash"] is None
