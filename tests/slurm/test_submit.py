"""Submissions without a plugin, on a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.model import ElementState
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.slurm.submission import Submission, compose, submit, wrap_script
from bftrainer_slurm.submission.directives import read_directives
from tests.slurm.conftest import Bench

pytestmark = [pytest.mark.slurm, pytest.mark.parametrize("gateway", ["look"], indirect=True)]

# Stands in for the element's command: says what it was given.
ELEMENT = f"{sys.executable} -c 'import sys; print(open(sys.argv[1]).read(), sys.argv[2:])'"


def submission(script: str, *options: str, **named: Any) -> Submission:
    return compose(
        "train.sh", read_directives(script), options, **{"partition": "bftrainer"} | named
    )


def printed(bench: Bench, array: int, output: Path) -> str:
    """What an element writes to this file."""
    bench.grow(array, (1, "n1"))
    bench.wait_for(array, ElementState.COMPLETED, 1)
    return output.read_text()


def test_a_submitted_script_becomes_a_trainer_that_runs_our_command(
    bench: Bench, tmp_path: Path
) -> None:
    script = f"""#!/bin/bash
#SBATCH --bftrainer=weight=2 -N 2-3 --time=30
#SBATCH --job-name="it's mine" --output={tmp_path}/out-%a
srun torchrun train.py
"""
    runner = SlurmRunner(environment=bench.lab.env)
    array = submit(runner, submission(script), wrap_script(script, ELEMENT), ["two words", "-N"])
    trainer = bench.trainer(array)
    assert (trainer.name, trainer.record.minutes) == ("it's mine", 30)
    assert trainer.record.personal
    assert [element.state for element in trainer.elements] == [ElementState.HELD] * 3
    text = printed(bench, array, tmp_path / "out-1")
    assert script in text
    assert "['two words', '-N']" in text


def test_slurm_takes_what_was_understood_and_the_jobs_environment_is_the_users(
    bench: Bench, tmp_path: Path
) -> None:
    script = (
        f"#!/bin/sh\n#SBATCH --partition=main --nodes=2 --ntasks=4 -o {tmp_path}/out_%a\n"
        "#SBATCH --nodelist=n[1-2] --reservation=none --time-min=9\n"
    )
    variables = {"SBATCH_RESERVATION": "none", "LC_ALL": "C.UTF-8", "MINE": "1"}
    runner = SlurmRunner(environment=bench.lab.env | variables)
    sweep = submission(script, "--comment=my own sweep", "--bftrainer=grace=7", task=7)
    array = submit(runner, sweep, wrap_script(script, "env #"))
    trainer = bench.trainer(array)
    assert (trainer.record.partitions, trainer.comment) == (("main",), "my own sweep")
    assert trainer.demands.nodes == {"n1", "n2"}
    found = printed(bench, array, tmp_path / "out_7").splitlines()
    users = {"LC_ALL=C.UTF-8", "MINE=1"}
    assert users | {"SLURM_NTASKS=2", "SLURM_TASKS_PER_NODE=2"} <= {*found}
    assert "BFTRAINER_GRACE=7" in found  # for the partition's guard
    assert not any(line.startswith("SLURM_BITSTR_LEN") for line in found)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "partition", "why"),
    [
        ("-N 2-1001", "bftrainer", "write at most -N 2-1000"),  # a tenth of the job table
        ("-N1-2", "none", "invalid partition"),
        ("-N1-2 -p main,nowhere", "bftrainer", "there is no partition nowhere"),
    ],
)
def test_what_cannot_be_is_refused(bench: Bench, options: str, partition: str, why: str) -> None:
    script = f"#!/bin/sh\n#SBATCH {options}\ntrue\n"
    runner = SlurmRunner(environment=bench.lab.env)
    with pytest.raises(RefusedError, match=why):
        submit(runner, submission(script, partition=partition), script)
