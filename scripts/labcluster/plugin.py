"""Our plugin in a private cluster: built for its Slurm, and set up as ``make install`` does."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from scripts.labcluster.stage import REPO

_SOURCES = REPO / "slurm_plugin"


def install(folder: Path, settings: Mapping[str, object]) -> str:
    """Build the plugin into the cluster's ``folder``, which every user can read.

    Returns the line for plugstack.conf, with these settings of the plugin's.
    """
    build = folder / "plugin"
    make = ("make", "-s", "-C", _SOURCES, f"BUILD={build}", "all")
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([_SOURCES / "install-python", build / "python"], check=True)
    words = [f"{name}={value}" for name, value in settings.items()]
    return f"optional {build}/bftrainer.so {' '.join(words)} python={build}/python"
