"""Which Slurm is installed here: tests that need another one are skipped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess


def slurm_version() -> tuple[int, int]:
    """Return the installed Slurm's version, (0, 0) where there is none."""
    try:
        said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True).stdout
    except OSError:
        return 0, 0
    version = re.search(r"(\d+)\.(\d+)", said)
    return (0, 0) if version is None else (int(version[1]), int(version[2]))


def slurm_is_missing() -> str | None:
    """Say why tests that need Slurm cannot run here, None where they can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [
        name
        for name in ("munged", "slurmctld", "slurmd", "sbatch")
        if not shutil.which(name, path=path)
    ]
    return f"not installed: {', '.join(missing)} ('make setup' does it)" if missing else None
