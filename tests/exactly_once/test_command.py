"""``scripts/run exactly-once`` as it is called: the figures of two ways of training."""

from __future__ import annotations

import json

import pytest

from tests.tools import run_tool

# Agents start cold, and the machine may be busy.
pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(1800)]


def test_each_sample_is_trained_as_processes_start_again() -> None:
    options = ("--way", "ddp-samples", "--way", "huggingface", "--change", "join", "--json")
    run = run_tool("exactly-once", *options, "--epochs", 1, "--samples", 480, timeout=1700)
    unchanged, *restarted = json.loads(run.stdout)["results"]
    assert (unchanged["found"]["lost"], unchanged["found"]["twice"]) == (0, 0)
    for one in restarted:  # Transformers may not be installed
        assert one["wrong"] == ""
        assert one["changes"] == ["join"]
        assert one["found"]["lost"] == 0
        assert one["found"]["rate_off"] < 0.2
        assert one["found"]["loss"] is not None  # it has ended
    loss = unchanged["found"]["loss"]
    assert restarted[0]["found"]["loss"] == pytest.approx(loss, rel=0.2)  # by the same optimizer
    assert all(one["found"]["twice"] <= 24 for one in restarted)  # less than a global batch
