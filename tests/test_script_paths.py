"""Paths that differ from node to node of a trainer are warned of; all else is not."""

from __future__ import annotations

import pytest

from bftrainer_slurm.script_paths import warnings

WITH_JOB_ID = [
    "srun torchrun train.py --output_dir runs/$SLURM_JOB_ID",
    "OUT=$SCRATCH/run_${SLURM_JOB_ID}",
    'export CKPT="/work/my runs/${SLURM_JOBID}/ckpt"',
    "export RUN_FOLDER=ckpt-$SLURM_JOB_ID",
    "srun python train.py --output-dir=run_$SLURM_JOB_ID",
    "mkdir -p logs/$SLURM_JOB_ID && cd logs/$SLURM_JOB_ID",
]
WITH_TIME = ["D=out/$(date +%F_%T)", "D=out/`date +%s`/x", 'D="runs/$(date)"']
HARMLESS = [
    "echo $SLURM_JOB_ID in runs/$SLURM_JOB_ID",
    "# OUT=runs/$SLURM_JOB_ID",
    "export MASTER_PORT=$((10000 + $SLURM_JOB_ID % 10000))",
    "srun torchrun --rdzv_id=$SLURM_JOB_ID train.py --data /data",
    "cp -r /data /tmp/$SLURM_JOB_ID",
    "export TRITON_CACHE_DIR=/tmp/triton_$SLURM_JOB_ID",
    "CACHE=$TMPDIR/cache/$SLURM_JOB_ID",
    "scontrol show job $SLURM_JOB_ID > logs/job",
    "NOW=$(date +%s)",
    "export WANDB_RUN_ID=$SLURM_JOB_ID",
    'srun -l --jobid "$SLURM_JOB_ID" python train.py',
    "OUT=runs/$SLURM_ARRAY_JOB_ID",
    "OUT=runs/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}",
]
WITHOUT_US = [
    "PYTHONPATH=src PYTHONUNBUFFERED=1 torchrun train.py",
    "export PYTHONPATH=$PWD",
    'export PYTHONPATH="$PWD/src:$MY_PYTHONPATH"',
    "srun bash -c 'export PYTHONPATH=src; torchrun train.py'",
    "srun apptainer exec --env PYTHONPATH=/code image.sif torchrun train.py",
]
WITH_US = [
    "export PYTHONPATH=src:$PYTHONPATH",
    'PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}src" torchrun train.py',
    "export MY_PYTHONPATH=src",
    "echo PYTHONPATH=$PWD",
    "# PYTHONPATH=src torchrun train.py",
]
PUT_BACK_BY_THE_PLUGIN = [
    "PYTHONPATH=src srun torchrun train.py",
    "export PYTHONPATH=src && srun torchrun train.py",
]


@pytest.mark.parametrize("line", WITH_JOB_ID)
def test_a_job_id_in_a_path_is_warned_of(line: str) -> None:
    (said,) = warnings(f"#!/bin/bash\n#SBATCH -N4\n{line}\n")
    assert said.startswith("line 3 has $SLURM_JOB_ID in a path")
    assert "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" in said


@pytest.mark.parametrize("line", WITH_TIME)
def test_a_time_in_a_path_is_warned_of(line: str) -> None:
    (said,) = warnings(f"#!/bin/bash\n{line}\n")
    assert said.startswith("line 2 has the time in a path")


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_printed_or_on_the_node_is_not(line: str) -> None:
    assert warnings(f"#!/bin/bash\n{line}\n") == []


@pytest.mark.parametrize("line", WITHOUT_US)
def test_a_python_path_that_hides_us_is_warned_of(line: str) -> None:
    (said,) = warnings(f"#!/bin/bash\n{line}\n")
    assert said.startswith("line 2 sets PYTHONPATH anew")
    assert said.endswith("write PYTHONPATH=...:$PYTHONPATH")


@pytest.mark.parametrize("line", WITH_US)
def test_one_in_which_the_script_keeps_us_is_not(line: str) -> None:
    assert warnings(f"#!/bin/bash\n{line}\n") == []


@pytest.mark.parametrize("line", PUT_BACK_BY_THE_PLUGIN)
def test_only_with_the_plugin_an_srun_puts_us_back(line: str) -> None:
    assert len(warnings(f"#!/bin/bash\n{line}\n")) == 1
    assert warnings(f"#!/bin/bash\n{line}\n", plugin=True) == []


@pytest.mark.parametrize("line", WITHOUT_US)
def test_but_not_what_is_set_behind_it(line: str) -> None:
    said = warnings(f"#!/bin/bash\n{line}\nsrun true\n", plugin=True)
    assert len(said) == ("srun" in line)


def test_of_each_kind_the_first_is_named() -> None:
    lines = ["A=a/$SLURM_JOB_ID", "B=b/$SLURM_JOB_ID", "C=c/$(date +%s)"]
    said = warnings("\n".join(lines))
    assert [one.partition(" in a path")[0] for one in said] == [
        "line 1 has $SLURM_JOB_ID",
        "line 3 has the time",
    ]
