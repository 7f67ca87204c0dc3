"""``scripts/run exactly-once`` as it is called: the figures of two ways of training."""

from __future__ import annotations

import json

import pytest

from tests.tools import run_tool

# Agents start cold, and the machine may be busy.
pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]


def test_each_sample_is_trained_once_where_processes_stay() -> None:
    options = ("--way", "trainer-global", "--change", "join", "--json")
    run = run_tool("exactly-once", *options, "--epochs", 1, timeout=800)
    unchanged, changed = json.loads(run.stdout)["results"]
    assert changed["wrong"] == ""
    assert changed["changes"] == ["join"]
    assert (unchanged["found"]["lost"], unchanged["found"]["twice"]) == (0, 0)
    assert (changed["found"]["lost"], changed["found"]["twice"]) == (0, 0)
    assert changed["found"]["loss"] == pytest.approx(unchanged["found"]["loss"], rel=0.2)
