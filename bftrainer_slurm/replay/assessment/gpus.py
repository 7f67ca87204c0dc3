"""A log's GPUs in words and in JSON, the same for ``assess`` and ``replay``."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from bftrainer_slurm.replay.assessment.parts import Compared, FreeHours
from bftrainer_slurm.replay.assessment.words import amount, percent
from bftrainer_slurm.replay.logs.hardware import GpuUse
from bftrainer_slurm.replay.parts import PartsResult
from bftrainer_slurm.words import counted


def gpus_document(
    use: GpuUse | None, free: FreeHours | None, compared: Compared | None
) -> dict[str, Any] | None:
    """GPUs in nodes that had a job, and all that no ordinary job had; null: not known."""
    if use is None:
        return None
    found: dict[str, Any] = asdict(use)
    if free is not None:
        found |= {"free_hours": free.total, "free_in_idle_nodes_hours": free.idle_nodes}
        found["fit_hours"] = {str(size): hours for size, hours in free.fit.items()}
    if compared is not None:
        found["compared"] = asdict(compared) | {"times_training": compared.times_training}
    return found


def gpus_rows(
    use: GpuUse | None, free: FreeHours | None, compared: Compared | None
) -> list[tuple[str, str]]:
    """Return names and texts; a row without a name goes on with the one before."""
    if use is None:
        return []
    rows = [
        (
            "GPUs",
            f"{amount(use.idle_hours)} GPU-hours idle in nodes that had a job, beside "
            f"{amount(use.allocated_hours)} allocated",
        ),
        (
            "",
            f"({use.gpus:,} in {counted(use.nodes, 'node')}; no other figure has them: "
            "trainers take whole nodes)",
        ),
    ]
    if free is not None and free.used_nodes > 0:
        fit = ", ".join(
            f"{percent(hours / free.used_nodes)} for {size}" for size, hours in free.fit.items()
        )
        in_use = percent(free.used_nodes / free.total)
        rows += [
            (
                "free GPUs",
                f"{amount(free.total)} GPU-hours, {in_use} of them in nodes that had a job",
            ),
            ("", f"of these, elements find room, by their GPUs: {fit}"),
        ]
    return [*rows, *_compared(compared)]


def _compared(found: Compared | None) -> list[tuple[str, str]]:
    """What the same trainers have on whole nodes, and on parts of nodes."""
    if found is None:
        return []
    rows = [
        ("whole nodes", _used_gpus(found.whole)),
        ("parts of nodes", f"{_used_gpus(found.parts)} ({found.sizes} of a node)"),
    ]
    if found.times_training is not None:
        rows.append(("", f"{found.times_training:.2f} times as much training"))
    return rows


def _used_gpus(result: PartsResult) -> str:
    share = result.used_hours / result.free_hours if result.free_hours else math.nan
    return (
        f"{percent(share)} of {amount(result.free_hours)} free GPU-hours used, "
        f"{counted(result.reclaimed, 'element')} ended for jobs"
    )
