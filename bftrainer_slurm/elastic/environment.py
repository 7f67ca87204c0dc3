"""torchrun's environment inside an element, and the folder in which it finds our rendezvous.

The SPANK plugin sets the same variables in C; its ``install-python`` makes such a folder for a
whole site, by copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import bftrainer_slurm
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord

FIRST = "BFTRAINER_FIRST"  # 1 where this is the first start of the trainer's first element, else 0


def element_environment(
    element: ElementId,
    record: TrainerRecord,
    run_id: str,
    keeper: str,
    slurm: Mapping[str, str],
    folder: Path,
    local_address: str | None = None,
) -> dict[str, str]:
    """Return the variables that torchrun's agent needs to join its trainer, and an element's own.

    Args:
        element: which one it is.
        record: its trainer's options.
        run_id: the trainer's run.
        keeper: the keeper's HOST:PORT.
        slurm: the job's environment.
        folder: for PYTHONPATH, with our rendezvous in it.
        local_address: where other agents reach this node, if not by its host name.
    """
    gpus = slurm.get("SLURM_GPUS_ON_NODE", "")
    before = slurm.get("PYTHONPATH")
    variables = {
        "PET_NNODES": f"1:{record.max_nodes}",
        "PET_NPROC_PER_NODE": gpus if gpus.isdecimal() and int(gpus) > 0 else "1",
        "PET_RDZV_BACKEND": "bftrainer",
        "PYTHONPATH": f"{folder}:{before}" if before else str(folder),
        "PET_RDZV_ID": run_id,
        # Every node lost costs each survivor one restart.
        "PET_MAX_RESTARTS": "1000000",
        # What 'srun --output' wrote must not be lost at the next start.
        "SLURM_OPEN_MODE": "append",
        "BFTRAINER_ELEMENT": str(element),
        "BFTRAINER_KEEPER": keeper,
        "BFTRAINER_GRACE": f"{record.spec.grace_s:g}",
    }
    if local_address is not None:
        variables["PET_LOCAL_ADDR"] = local_address
    return variables


# The same as in pyproject.toml, as the package may run here without being installed.
ENTRY_POINTS = """\
[torchrun.handlers]
bftrainer = bftrainer_slurm.elastic.rendezvous:handler
[torch.backends]
bftrainer = bftrainer_slurm.elastic.tasks:autoload
"""


def make_folder(folder: Path) -> None:
    """Make a folder with a link to this package, and the metadata by which torchrun finds it."""
    version = bftrainer_slurm.__version__
    metadata = folder / f"bftrainer_slurm-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: bftrainer-slurm\nVersion: {version}\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "bftrainer_slurm").symlink_to(Path(bftrainer_slurm.__file__).parent)
