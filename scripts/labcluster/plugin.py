"""Our plugin in a private cluster: built for its Slurm, and set up as ``make install`` does."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from scripts.labcluster.stage import REPO

_SOURCES = REPO / "slurm_plugin"


def install(folder: Path, settings: Mapping[str, object]) -> str:
    """Put the plugin into the cluster's ``folder``, which every user can read.

    Returns the line for plugstack.conf, with these settings of the plugin's.
    """
    plugin = folder / "plugin"
    shutil.copytree(built(), plugin)
    words = [f"{name}={value}" for name, value in settings.items()]
    return f"optional {plugin}/bftrainer.so {' '.join(words)} python={plugin}/python"


@cache
def built() -> Path:
    """Build it once for all clusters of this process: it takes five seconds of a core.

    Returns its folder, which every user can read, until this process ends.
    """
    above = Path(tempfile.mkdtemp(prefix="bftrainer-plugin-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    above.chmod(0o755)
    build = above / "plugin"
    make = ("make", "-s", "-C", _SOURCES, f"BUILD={build}", "all")
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([_SOURCES / "install-python", build / "python"], check=True)
    return build
