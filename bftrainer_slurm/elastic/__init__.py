"""What runs inside users' jobs: the element's environment, its end, training on changing nodes.

Standard library and torch only; of the rest of the project it uses just the spec and the keeper's
client, so that a job's Python needs nothing installed. For scripts: ``Trainer`` re-forms in
process (``ShardedTrainer`` with FSDP2), ``step`` tells the progress of one that does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.sharded import ShardedTrainer
    from bftrainer_slurm.elastic.steps import step
    from bftrainer_slurm.elastic.trainer import Trainer

__all__ = ["ShardedTrainer", "Trainer", "step"]


def __getattr__(name: str) -> Any:
    """Import on first use: an element's first process needs no torch."""
    if name == "Trainer":
        from bftrainer_slurm.elastic.trainer import Trainer

        return Trainer
    if name == "ShardedTrainer":
        from bftrainer_slurm.elastic.sharded import ShardedTrainer

        return ShardedTrainer
    if name == "step":
        from bftrainer_slurm.elastic.steps import step

        return step
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
