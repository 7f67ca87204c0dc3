"""Paths that differ from node to node of a trainer are warned of; all else is not."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from bftrainer_slurm.script_paths import warnings

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
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
def test_an_srun_without_the_plugin_does_not_put_us_back(line: str) -> None:
    assert len(warnings(f"#!/bin/bash\n{line}\n")) == 1


def test_of_each_kind_the_first_is_named() -> None:
    lines = ["A=a/$SLURM_JOB_ID", "B=b/$SLURM_JOB_ID", "C=c/$(date +%s)"]
    said = warnings("\n".join(lines))
    assert [one.partition(" in a path")[0] for one in said] == [
        "line 1 has $SLURM_JOB_ID",
        "line 3 has the time",
    ]


def test_the_plugin_warns_of_the_same(tmp_path: Path) -> None:
    make = ["make", "-s", "-C", str(PLUGIN), f"BUILD={tmp_path}", f"{tmp_path}/libscript_paths.so"]
    subprocess.run(make, check=True)
    plugin, libc = ctypes.CDLL(str(tmp_path / "libscript_paths.so")), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    script, found = tmp_path / "script", (ctypes.c_uint * 3)()
    for line in [
        *WITH_JOB_ID,
        *WITH_TIME,
        *HARMLESS,
        *WITHOUT_US,
        *WITH_US,
        *PUT_BACK_BY_THE_PLUGIN,
    ]:
        script.write_text(f"#!/bin/bash\n{line}\n")
        stream = ctypes.c_void_p(libc.fopen(bytes(script), b"r"))
        plugin.script_paths_find(stream, found)
        libc.fclose(stream)
        restored = line in PUT_BACK_BY_THE_PLUGIN
        said = [
            re.match(r"line (\d) (?:has|sets) (.*) (?:in a path|anew)", one)
            for one in ([] if restored else warnings(script.read_text()))
        ]
        ours = {one[2]: int(one[1]) for one in said if one is not None}
        kinds = ("$SLURM_JOB_ID", "the time", "PYTHONPATH")
        assert [ours.get(kind, 0) for kind in kinds] == list(found), line
