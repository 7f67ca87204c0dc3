"""What runs inside users' jobs: the element's environment, its end, training on changing nodes.

Standard library and torch only. Of the rest of the project it uses just ``spec``, ``model`` and
the keeper's client side, so that a job's Python needs nothing else installed. For scripts:
``Trainer`` re-forms in process (``ShardedTrainer`` with FSDP2; a framework beside it is set up
``alone``). A script that is restarted at changes reports its progress (``step``), and saves when it
is asked to (``must_save``, ``saved``). Every script can be told of changes (``on_change``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.inprocess.alone import alone
    from bftrainer_slurm.elastic.inprocess.sharded import ShardedTrainer
    from bftrainer_slurm.elastic.inprocess.trainer import Trainer
    from bftrainer_slurm.elastic.listeners import on_change
    from bftrainer_slurm.elastic.saving import must_save, saved
    from bftrainer_slurm.elastic.steps import step

__all__ = ["ShardedTrainer", "Trainer", "alone", "must_save", "on_change", "saved", "step"]

_HOMES = {
    "ShardedTrainer": "inprocess.sharded",
    "Trainer": "inprocess.trainer",
    "alone": "inprocess.alone",
    "must_save": "saving",
    "on_change": "listeners",
    "saved": "saving",
    "step": "steps",
}


def __getattr__(name: str) -> Any:
    """Import on first use: an element's first process needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
