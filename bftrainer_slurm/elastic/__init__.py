"""What runs inside users' jobs: the element's environment, its end, training on changing nodes.

Standard library and torch only. Of the rest of the project it uses just ``spec``, ``model`` and
the keeper's client side, so that a job's Python needs nothing else installed. A script reports its
progress (``step``), saves when it is asked to (``must_save``, ``saved``), keeps its state in memory
(``Snapshot``), is told of changes of its nodes (``on_change``), and lets the noise of its gradients
be measured (``measure_noise``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.listeners import on_change
    from bftrainer_slurm.elastic.noise import measure_noise
    from bftrainer_slurm.elastic.saving import must_save, saved
    from bftrainer_slurm.elastic.snapshot import Snapshot
    from bftrainer_slurm.elastic.steps import step

__all__ = ["Snapshot", "measure_noise", "must_save", "on_change", "saved", "step"]

_HOMES = {
    "Snapshot": "snapshot",
    "measure_noise": "noise",
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
