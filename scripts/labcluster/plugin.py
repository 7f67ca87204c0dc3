"""Our plugin in a private cluster: built for its Slurm, and set up as ``make install`` does."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCES = Path(__file__).resolve().parent.parent.parent / "slurm_plugin"


def install(
    folder: Path,
    keeper: str,
    identity: str,
    qos: str | None = None,
    local_address: str | None = None,
) -> str:
    """Build the plugin into the cluster's ``folder``, which every user can read.

    Returns the line for plugstack.conf: elements are told of ``keeper`` (HOST:PORT), and
    ``identity`` is the setting by which they prove whose they are. ``qos`` is the one that they
    run in, and ``local_address`` what all nodes are reached by, where they do not know their own.
    """
    build = folder / "plugin"
    subprocess.run(
        ["make", "-s", "-C", str(_SOURCES), f"BUILD={build}", "all"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    line = f"optional {build}/bftrainer.so keeper={keeper} {identity}"
    if local_address is not None:
        line += f" local_addr={local_address}"
    if qos is not None:
        line += f" qos={qos}"
    subprocess.run([_SOURCES / "install-python", build / "python"], check=True)
    return f"{line} python={build}/python"
