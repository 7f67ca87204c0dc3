"""A folder for PYTHONPATH by which any torchrun finds our rendezvous, with nothing else in it.

The plugin's ``install-python`` makes one for a whole site, by copying.
"""

from __future__ import annotations

from pathlib import Path

import bftrainer_slurm

# As in pyproject.toml; the package may run here without having been installed.
ENTRY_POINTS = "[torchrun.handlers]\nbftrainer = bftrainer_slurm.elastic.rendezvous:handler\n"


def make_folder(folder: Path) -> None:
    """Make a folder with a link to the package that runs this, and what tells torchrun of it."""
    version = bftrainer_slurm.__version__
    metadata = folder / f"bftrainer_slurm-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: bftrainer-slurm\nVersion: {version}\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "bftrainer_slurm").symlink_to(Path(bftrainer_slurm.__file__).parent)
