"""The model that CBC gets: of several plans that are as good, it finds one or the other by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_WRITE = """
import sys
import mip
from bftrainer_slurm.planner.optimum import incumbents
from bftrainer_slurm.planner.problem import NodeClass
from tests.planner.problems import planned, problem

optimize = mip.Model.optimize

def write(model, relax=False, **limits):
    if relax:  # what finds the bound
        return optimize(model, relax=True, **limits)
    model.write(sys.argv[1])
    raise SystemExit

mip.Model.optimize = write
fast = NodeClass("fast", frozenset({"n0", "n1", "n2"}), "gpu")
slow = NodeClass("slow", frozenset({"n3", "n4", "n5", "n6", "n7"}), "cpu")
trainers = [planned("a", "n0 n1"), planned("b", "n3"), planned("c", bounds=(2, 4))]
list(incumbents(problem(8, *trainers, classes=(fast, slow)), 10.0))
"""


def model_of(seed: int, path: Path) -> str:
    """What CBC gets in a process with this order of sets."""
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    subprocess.run([sys.executable, "-c", _WRITE, str(path)], env=environment, check=True)
    return path.read_text()


def test_is_the_same_in_each_process(tmp_path: Path) -> None:
    (model,) = {model_of(seed, tmp_path / "model.lp") for seed in (1, 2, 3)}
    assert "Integers" in model
