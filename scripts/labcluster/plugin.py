"""Our plugin in a private cluster: built for its Slurm, and set up as ``make install`` does."""

from __future__ import annotations

import atexit
import compileall
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from scripts.labcluster.stage import REPO

_SOURCES = REPO / "slurm_plugin"
_MADE = REPO / "build" / "slurm_plugin"  # by 'make plugin', for the Slurm of this host
_VERSION = "slurm-version"


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
    version = build / _VERSION
    _make(build, version)
    if (_MADE / _VERSION).exists() and (_MADE / _VERSION).read_text() == version.read_text():
        shutil.copytree(_MADE, build, dirs_exist_ok=True)  # and make does what is left to do
        (build / "rewriter.o").unlink(missing_ok=True)  # it knows another folder
    python = build / "python"
    _make(build, "all", f"pythondir={python}")
    subprocess.run([_SOURCES / "install-python", python], check=True)
    # Its users may not write there, and would each compile it anew.
    compileall.compile_dir(python / "bftrainer_slurm" / "elastic", quiet=2)
    compileall.compile_dir(python / "bftrainer_slurm" / "keeper", quiet=2)
    return build


def _make(build: Path, *what: str | Path) -> None:
    make = ("make", "-s", "-C", _SOURCES, f"BUILD={build}", *what)
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
