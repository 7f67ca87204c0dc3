"""Paths that differ from node to node of a trainer are warned of; all else is not."""

from __future__ import annotations

import pytest

from bftrainer_slurm.script_paths import warnings

JOB_ID, TIME, ANEW = "has $SLURM_JOB_ID in a path", "has the time in a path", "sets PYTHONPATH anew"
WARNED_OF = [
    ("srun torchrun train.py --output_dir runs/$SLURM_JOB_ID", JOB_ID),
    ("OUT=$SCRATCH/run_${SLURM_JOB_ID}", JOB_ID),
    ('export CKPT="/work/my runs/${SLURM_JOBID}/ckpt"', JOB_ID),
    ("export RUN_FOLDER=ckpt-$SLURM_JOB_ID", JOB_ID),
    ("srun python train.py --output-dir=run_$SLURM_JOB_ID", JOB_ID),
    ("mkdir -p logs/$SLURM_JOB_ID && cd logs/$SLURM_JOB_ID", JOB_ID),
    ("D=out/$(date +%F_%T)", TIME),
    ("D=out/`date +%s`/x", TIME),
    ('D="runs/$(date)"', TIME),
    ("PYTHONPATH=src PYTHONUNBUFFERED=1 torchrun train.py", ANEW),
    ("export PYTHONPATH=$PWD", ANEW),
    ('export PYTHONPATH="$PWD/src:$MY_PYTHONPATH"', ANEW),
    ("srun bash -c 'export PYTHONPATH=src; torchrun train.py'", ANEW),
    ("srun apptainer exec --env PYTHONPATH=/code image.sif torchrun train.py", ANEW),
]
# With the plugin an srun puts us back, but not behind it.
PUT_BACK = [
    ("PYTHONPATH=src srun torchrun train.py", ANEW),
    ("export PYTHONPATH=src && srun torchrun train.py", ANEW),
]
# What is printed, is on the node, or keeps us.
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
    "export PYTHONPATH=src:$PYTHONPATH",
    'PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}src" torchrun train.py',
    "export MY_PYTHONPATH=src",
    "echo PYTHONPATH=$PWD",
    "# PYTHONPATH=src torchrun train.py",
]
REMEDIES = {
    JOB_ID: "write ${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}, which is the trainer's number",
    TIME: "write $SLURM_ARRAY_JOB_ID, the trainer's number",
    ANEW: "write PYTHONPATH=...:$PYTHONPATH",
}


def said_of(line: str, plugin: bool = False) -> list[str]:
    return warnings(f"#!/bin/bash\n#SBATCH -N4\n{line}\n", plugin)


@pytest.mark.parametrize(("line", "why"), [*WARNED_OF, *PUT_BACK])
def test_what_differs_from_node_to_node_or_hides_us_is_warned_of(line: str, why: str) -> None:
    (said,) = said_of(line)
    assert said.startswith(f"line 3 {why}")
    assert said.endswith(REMEDIES[why])
    if why == ANEW:
        hidden = (line, why) not in PUT_BACK and "srun" in line
        assert len(said_of(f"{line}\nsrun true", plugin=True)) == hidden


@pytest.mark.parametrize("line", HARMLESS)
def test_all_else_is_not(line: str) -> None:
    assert said_of(line) == []


def test_of_each_kind_the_first_is_named() -> None:
    lines = ["A=a/$SLURM_JOB_ID", "B=b/$SLURM_JOB_ID", "C=c/$(date +%s)"]
    said = warnings("\n".join(lines))
    assert [one.partition(" in a path")[0] for one in said] == [
        "line 1 has $SLURM_JOB_ID",
        "line 3 has the time",
    ]
