"""Paths that differ from node to node of a trainer are warned of; all else is not."""

from __future__ import annotations

import pytest

from bftrainer_slurm.slurm.script_paths import warnings


@pytest.mark.parametrize(
    "line",
    [
        "srun torchrun train.py --output_dir runs/$SLURM_JOB_ID",
        "OUT=$SCRATCH/run_${SLURM_JOB_ID}",
        'export CKPT="/work/my runs/${SLURM_JOBID}/ckpt"',
        "export RUN_FOLDER=ckpt-$SLURM_JOB_ID",
        "srun python train.py --output-dir=run_$SLURM_JOB_ID",
        "mkdir -p logs/$SLURM_JOB_ID && cd logs/$SLURM_JOB_ID",
    ],
)
def test_a_job_id_in_a_path_is_warned_of(line: str) -> None:
    (said,) = warnings(f"#!/bin/bash\n#SBATCH -N4\n{line}\n")
    assert said.startswith("line 3 has $SLURM_JOB_ID in a path")
    assert "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" in said


@pytest.mark.parametrize("line", ["D=out/$(date +%F_%T)", "D=out/`date +%s`/x", 'D="runs/$(date)"'])
def test_a_time_in_a_path_is_warned_of(line: str) -> None:
    (said,) = warnings(f"#!/bin/bash\n{line}\n")
    assert said.startswith("line 2 has the time in a path")


@pytest.mark.parametrize(
    "line",
    [
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
    ],
)
def test_what_is_printed_or_on_the_node_is_not(line: str) -> None:
    assert warnings(f"#!/bin/bash\n{line}\n") == []


def test_of_each_kind_the_first_is_named() -> None:
    lines = ["A=a/$SLURM_JOB_ID", "B=b/$SLURM_JOB_ID", "C=c/$(date +%s)"]
    said = warnings("\n".join(lines))
    assert [one.partition(" in a path")[0] for one in said] == [
        "line 1 has $SLURM_JOB_ID",
        "line 3 has the time",
    ]
