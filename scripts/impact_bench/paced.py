"""Runs a training script with a pause after each step, as if a GPU did the work.

The script is not changed. Without the pause the nodes, which share one host's few processors, would
slow slurmctld down; on real nodes a training does not.
"""

from __future__ import annotations

import runpy
import sys
import time
from typing import Any

from bftrainer_slurm.elastic import steps

_PAUSE_S = 0.25

_step = steps.step


def _paced(*arguments: Any, **measures: Any) -> None:
    _step(*arguments, **measures)
    time.sleep(_PAUSE_S)


if __name__ == "__main__":
    steps.step = _paced
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
