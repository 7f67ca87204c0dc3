"""What a trainer's user has asked for, as a status shows it: the controller's, or Slurm's alone."""

from __future__ import annotations

from typing import Any

from bftrainer_slurm.spec import TrainerRecord


def asked(record: TrainerRecord) -> dict[str, Any]:
    """Return what the trainer's user has asked for."""
    return {
        "min_nodes": record.min_nodes,
        "max_nodes": record.max_nodes,
        "sizes": list(record.sizes),
        "step": record.step,
        "gpu_choices": list(record.gpus),
        "weight": record.spec.weight,
        "grace_s": record.spec.grace_s,
        "node_hours": record.spec.node_hours,
        "start_minutes": record.minutes,
        "partitions": list(record.partitions),
        "node_list": record.nodes,
    }
