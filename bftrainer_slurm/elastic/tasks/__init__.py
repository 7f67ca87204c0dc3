"""Trainings that no torchrun started (``srun python``): one of a node's tasks becomes its torchrun.

``autoload`` is the entry point that torch calls at the end of ``import torch`` (group
``torch.backends``). The rendezvous itself is torchrun's, see ``rendezvous``.
"""

from __future__ import annotations

import os
import sys


def autoload() -> None:
    """Set up this process, if it is in an element; cheap and harmless in any other.

    It never raises, as torch would end. A fault here leaves the process as it is.
    """
    if "BFTRAINER_ELEMENT" not in os.environ:
        return
    try:
        from bftrainer_slurm.elastic.tasks import hooks

        hooks.install(os.environ, sys.orig_argv)
    except Exception as error:
        from bftrainer_slurm.elastic.log import say

        say(f"this process is left as it is: {error!r}")
