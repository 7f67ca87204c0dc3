"""The GPUs of a private cluster's nodes: empty files, or devices that Slurm can keep jobs from."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from scripts.labcluster import namespaces
from scripts.labcluster.namespaces import Hierarchy

_MAJORS = range(240, 512)  # from those for local use up: most have no driver (devices.txt)


def make(folder: Path, count: int, devices: bool) -> list[Path]:
    """Make the GPUs of all nodes in ``folder``; return their paths.

    Devices have no driver: open() ends with ENXIO for who may open them, with EPERM for others.
    """
    gpus = [folder / f"gpu{number}" for number in range(count)]
    for number, gpu in enumerate(gpus):
        if devices:
            os.mknod(gpu, stat.S_IFCHR, os.makedev(_major(), number))
            gpu.chmod(0o666)
        else:
            gpu.touch()  # slurmd only checks that it exists
    return gpus


def obstacle() -> str | None:
    """Return why this host cannot keep jobs from devices; None: it can."""
    cgroups = namespaces.hierarchy("devices")
    if cgroups is None:
        return "no cgroups to write to: neither v2 at /sys/fs/cgroup, nor v1's freezer and devices"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        try:
            cgroups.make(folder, "n1")
            (gpu,) = make(folder, 1, devices=True)
            if (why := _cannot_deny(cgroups, folder, gpu)) is not None:
                return why
            gpu.read_bytes()
        except OSError as error:
            if error.errno != errno.ENXIO:
                return f"a cgroup, or a device in /var/tmp, cannot be had: {error}"
        finally:
            cgroups.remove(folder)
    return None


def _cannot_deny(cgroups: Hierarchy, folder: Path, gpu: Path) -> str | None:
    """Return why a cgroup of version 1 cannot deny a device."""
    if cgroups.version == 2:
        return None  # slurmd itself has the program that denies devices there
    own = dict(zip(cgroups.roots, cgroups.of_node(folder, "n1"), strict=True))["devices"]
    number = gpu.stat().st_rdev
    try:
        (own / "devices.deny").write_text(f"c {os.major(number)}:{os.minor(number)} rwm")
    except OSError as error:
        return f"a cgroup cannot deny devices: {own}/devices.deny: {error.strerror}"
    return None


def _major() -> int:
    """Return the number of a driver that is not there."""
    characters = Path("/proc/devices").read_text().partition("\nBlock")[0]
    taken = {line.split()[0] for line in characters.splitlines() if line.strip()}
    return next(number for number in _MAJORS if str(number) not in taken)
