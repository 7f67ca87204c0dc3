"""torchrun's environment inside an element. The SPANK plugin sets the very same in C.

Why each value is what it is: DESIGN.md, "The elastic runtime".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord

# For who chooses torchrun's own c10d: it waits 30 s for a last call and 15 s for a dead peer.
_RENDEZVOUS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"


def element_environment(
    element: ElementId,
    record: TrainerRecord,
    run_id: str,
    keeper: str,
    slurm: Mapping[str, str],
    folder: Path,
    local_address: str | None = None,
) -> dict[str, str]:
    """Return what torchrun's agent needs to join its trainer, and what marks an element.

    Args:
        element: which one it is.
        record: what its trainer wants.
        run_id: the trainer's run.
        keeper: the keeper's HOST:PORT.
        slurm: the job's environment.
        folder: for PYTHONPATH, with our rendezvous in it.
        local_address: what the agents reach this node by, where its own host name does not do.
    """
    gpus = slurm.get("SLURM_GPUS_ON_NODE", "")
    before = slurm.get("PYTHONPATH")
    variables = {
        "PET_NNODES": f"1:{record.max_nodes}",
        "PET_NPROC_PER_NODE": gpus if gpus.isdecimal() and int(gpus) > 0 else "1",
        "PET_RDZV_BACKEND": "bftrainer",
        "PYTHONPATH": f"{folder}:{before}" if before else str(folder),
        "PET_RDZV_ID": run_id,
        "PET_RDZV_CONF": _RENDEZVOUS,
        # Every node lost costs each survivor one restart.
        "PET_MAX_RESTARTS": "1000000",
        # Without it a joining agent kills all others after 60 s.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "BFTRAINER_ELEMENT": str(element),
        "BFTRAINER_KEEPER": keeper,
        "BFTRAINER_GRACE": f"{record.spec.grace_s:g}",
    }
    if local_address is not None:
        variables["PET_LOCAL_ADDR"] = local_address
    return variables
