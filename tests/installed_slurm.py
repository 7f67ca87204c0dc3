"""Which Slurm is installed here: tests that need another one are skipped."""

from __future__ import annotations

import os
import shutil

from scripts.labcluster.cluster import LabError, installed_version


def slurm_version() -> tuple[int, int]:
    """Return the installed Slurm's version, (0, 0) where there is none."""
    try:
        return installed_version()
    except LabError:
        return 0, 0


def slurm_is_missing() -> str | None:
    """Say why tests that need Slurm cannot run here, None where they can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    needed = ("munged", "slurmctld", "slurmd", "sbatch")
    missing = [name for name in needed if not shutil.which(name, path=path)]
    return f"not installed: {', '.join(missing)} ('make setup' does it)" if missing else None
