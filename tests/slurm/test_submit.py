"""Submissions without a plugin, on a real cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.model import ElementState
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.open import GROW
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.slurm.submission import (
    Submission,
    asking,
    compose,
    submit,
    wrap_script,
)
from bftrainer_slurm.submission.directives import read_directives
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import Bench, clear

pytestmark = pytest.mark.slurm

SCRIPT = """#!/bin/bash
#SBATCH --bftrainer=weight=2 -N 2-3 --time=30
#SBATCH --job-name="it's mine" --output={folder}/out-%a
srun torchrun train.py
"""
# Stands in for the element's command: says what it was given.
ELEMENT = f"{sys.executable} -c 'import sys; print(open(sys.argv[1]).read(), sys.argv[2:])'"


@pytest.fixture
def bench(lab: Lab, programs: Path) -> Iterator[Bench]:
    yield Bench(lab, CommandGateway(SlurmRunner(environment=lab.env), f"{programs}/{GROW}"))
    clear(lab)


def submission(script: str, *options: str) -> Submission:
    return compose("train.sh", read_directives(script), options, partition="bftrainer")


def test_a_submitted_script_becomes_a_trainer_that_runs_our_command(
    bench: Bench, tmp_path: Path
) -> None:
    script = SCRIPT.format(folder=tmp_path)
    runner = SlurmRunner(environment=bench.lab.env)
    wrapped = wrap_script(script, ELEMENT)
    array = submit(runner, submission(script), wrapped, ["two words", "-N"])
    trainer = bench.trainer(array)
    assert (trainer.name, trainer.record.minutes, trainer.record.personal) == (
        "it's mine",
        30,
        True,
    )
    assert [element.state for element in trainer.elements] == [ElementState.HELD] * 3
    bench.grow(array, (1, "n1"))
    wait_until(lambda: bench.state(array, 1) is ElementState.COMPLETED)
    printed = (tmp_path / "out-1").read_text()
    assert script in printed
    assert "['two words', '-N']" in printed


def test_the_guard_of_the_partition_is_told_of_the_grace(bench: Bench, tmp_path: Path) -> None:
    script = f"#!/bin/sh\n#SBATCH --output={tmp_path}/out-%a\n"
    runner = SlurmRunner(environment=bench.lab.env)
    graceful = submission(script, "-N1-1", "--bftrainer=grace=7")
    array = submit(runner, graceful, wrap_script(script, "echo grace=$BFTRAINER_GRACE"))
    bench.grow(array, (0, "n1"))
    wait_until(lambda: bench.state(array, 0) is ElementState.COMPLETED)
    assert (tmp_path / "out-0").read_text().startswith("grace=7 ")


@pytest.mark.once
def test_more_than_a_tenth_of_the_job_table_is_refused_with_the_remedy(bench: Bench) -> None:
    script = "#!/bin/sh\ntrue\n"
    runner = SlurmRunner(environment=bench.lab.env)
    with pytest.raises(RefusedError, match="write at most -N 2-1000"):
        submit(runner, submission(script, "-N", "2-1001"), script)


@pytest.mark.newest
def test_more_nodes_than_an_array_can_have_are_refused_with_the_remedy(
    make_lab: Callable[..., Lab],
) -> None:
    script = "#!/bin/sh\ntrue\n"
    runner = SlurmRunner(environment=make_lab(nodes=1, conf=["MaxArraySize=11"]).env)
    with pytest.raises(RefusedError, match="MaxArraySize"):
        submit(runner, submission(script, "-N", "2-12"), script)


def test_what_sbatch_refuses_is_said_in_its_words(bench: Bench) -> None:
    script = "#!/bin/sh\ntrue\n"
    runner = SlurmRunner(environment=bench.lab.env)
    with pytest.raises(RefusedError, match="invalid partition"):
        submit(runner, compose("x", read_directives(script), ["-N1-2"], partition="none"), script)


def test_the_jobs_environment_is_the_users(bench: Bench, tmp_path: Path) -> None:
    script = f"#!/bin/sh\n#SBATCH --output={tmp_path}/out\ntrue\n"
    own = bench.lab.env | {"LC_ALL": "C.UTF-8", "MINE": "1"}
    runner = SlurmRunner(environment=own)
    array = submit(runner, submission(script, "-N1-1"), wrap_script(script, "env #"))
    bench.grow(array, (0, "n1"))
    wait_until(lambda: bench.state(array, 0) is ElementState.COMPLETED)
    printed = (tmp_path / "out").read_text().split(os.linesep)
    assert {"LC_ALL=C.UTF-8", "MINE=1"} <= set(printed)
    assert not any(line.startswith("SLURM_BITSTR_LEN") for line in printed)


@pytest.mark.once
def test_a_partition_of_the_users_that_is_not_there_is_refused(bench: Bench) -> None:
    script = "#!/bin/sh\n#SBATCH --partition=main,nowhere\ntrue\n"
    runner = SlurmRunner(environment=bench.lab.env)
    with pytest.raises(RefusedError, match="there is no partition nowhere"):
        submit(runner, submission(script, "-N1-2"), script)


def test_slurm_takes_what_was_understood(bench: Bench, tmp_path: Path) -> None:
    script = (
        f"#!/bin/sh\n#SBATCH --partition=main --nodes=2 --ntasks=4 -o {tmp_path}/out_%a\n"
        "#SBATCH --nodelist=n[1-2] --reservation=none --time-min=9\n"
    )
    own = bench.lab.env | {"SBATCH_RESERVATION": "none"}
    runner = SlurmRunner(environment=own)
    own_comment = ["--comment=my own sweep"]
    given = read_directives(script)
    sweep = compose("train.sh", given, own_comment, partition="bftrainer", task=7)
    wrapped = wrap_script(script, "echo $SLURM_NTASKS $SLURM_TASKS_PER_NODE #")
    array = submit(runner, sweep, wrapped)
    trainer = bench.trainer(array)
    assert (trainer.record.partitions, trainer.comment) == (("main",), "my own sweep")
    assert trainer.demands.nodes == {"n1", "n2"}
    bench.grow(array, (1, "n1"))
    wait_until(lambda: bench.state(array, 1) is ElementState.COMPLETED)
    assert (tmp_path / "out_7").read_text() == "2 2\n"


def test_a_singleton_waits_for_what_has_its_name(bench: Bench) -> None:
    script = "#!/bin/sh\n#SBATCH --dependency=singleton -J chain -N1\ntrue\n"
    runner = SlurmRunner(environment=bench.lab.env)
    wrapped = wrap_script(script, "true #")
    given, ask = read_directives(script), asking(runner)

    def submitted() -> int:
        chained = compose("train.sh", given, partition="bftrainer", ask=ask)
        return submit(runner, chained, wrapped)

    first, second, third = (submitted() for _ in range(3))
    assert bench.trainer(first).demands.dependency == ""
    assert f"afterany:{first}" in bench.trainer(second).demands.dependency
    assert set(bench.gateway.queue().behind) == {second, third}
    bench.gateway.cancel(first)
    bench.gateway.cancel(second)
    assert set(bench.gateway.queue().behind) == set()
