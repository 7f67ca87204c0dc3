"""What the plugin costs ordinary commands, in figures, and the command that measures it."""

from __future__ import annotations

import json

import pytest

from scripts.command_cost import compare, rendered
from tests.tools import run_tool


def test_the_two_runs_of_a_round_are_compared_with_each_other() -> None:
    found = compare([(10.0, 11.0), (20.0, 21.0), (30.0, 32.0)])  # slow ones and fast ones
    assert (found.without, found.with_plugin, found.difference) == (20.0, 21.0, 1.0)
    found = compare([(5.0, 5.0 + number) for number in range(100)])
    assert (found.low, found.high) == (40.0, 59.0)  # 1.96 times 5 values on each side
    line = rendered({"sbatch": compare([(10.0, 12.0)])}).splitlines()[-1]
    assert line.split()[:5] == ["sbatch", "10.00", "12.00", "+2.00", "+2.00"]


@pytest.mark.slurm
@pytest.mark.once
@pytest.mark.timeout(1500)
def test_commands_are_measured_on_a_real_slurm() -> None:
    done = run_tool("bench-commands", "--rounds=10", "--json", timeout=1200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ordinary = ["sbatch", "sbatch, processor", "srun true", "srun true, processor"]
    assert list(found) == [*ordinary, "sbatch --bftrainer"]
    assert all(one["without"] > 0 for one in found.values())
