"""A log's GPUs in words and in JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bftrainer_slurm.replay.assessment.words import amount, percent
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.words import counted


def gpus_document(log: Log) -> dict[str, Any] | None:
    """GPUs in nodes that had a job, and all that no ordinary job had; null: not known."""
    use, free = log.gpu_use, log.free_gpus
    if use is None or free is None:
        return None
    return asdict(use) | {
        "free_hours": free.total,
        "free_in_idle_nodes_hours": free.idle_nodes,
        "together_hours": {str(count): hours for count, hours in free.together.items()},
        "fit_hours": {str(size): hours for size, hours in free.fit.items()},
    }


def gpus_rows(log: Log) -> list[tuple[str, str]]:
    """Return names and texts; a row without a name goes on with the one before."""
    use, free = log.gpu_use, log.free_gpus
    if use is None or free is None:
        return []
    idle, allocated = amount(use.idle_hours), amount(use.allocated_hours)
    where = f"{use.gpus:,} in {counted(use.nodes, 'node')}"
    whole = "" if log.in_gpus else "; no other figure has them: trainers take whole nodes"
    rows = [
        ("GPUs", f"{idle} GPU-hours idle in nodes that had a job, beside {allocated} allocated"),
        ("", f"({where}{whole})"),
    ]
    if free.used_nodes > 0:
        of = free.used_nodes
        total, in_use = amount(free.total), percent(of / free.total)
        together = ", ".join(
            f"{count}: {percent(one / of)}" for count, one in free.together.items()
        )
        fit = ", ".join(f"{percent(one / of)} for {size}" for size, one in free.fit.items())
        rows += [
            ("free GPUs", f"{total} GPU-hours, {in_use} of them in nodes that had a job"),
            ("", f"by how many of a node are free together: {together}"),
            ("", f"of these, elements find room, by their GPUs: {fit}"),
        ]
    return rows
