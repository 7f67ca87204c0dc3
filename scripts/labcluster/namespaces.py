"""Namespaces of a cluster's nodes: like a host, each has its own name, processes, mounts, cgroups.

Their networks are in networks.py. Only running processes keep a namespace. Needs root.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

PROGRAMS = ("unshare", "nsenter", "mount")
_MOUNTPOINT = Path("/sys/fs/cgroup")
_ALL = "bftrainer-lab"  # the parent of the cgroups of all clusters on this host


@dataclass(frozen=True)
class Hierarchy:
    """The host's cgroups that Slurm can use: version 2's, or some of version 1's controllers.

    ``roots`` are by the controllers' names, which version 2 does not tell apart.
    """

    version: int
    roots: Mapping[str, str]

    def of_node(self, folder: Path, node: str) -> list[Path]:
        """Return the cgroups of a node; the node sees each as the root of all cgroups."""
        return [cluster / node for cluster in self._of_cluster(folder)]

    @property
    def of_daemons(self) -> list[Path]:
        """Return where a node's daemons start, as the node sees it.

        With v2 a cgroup has either processes or children.
        """
        return [_MOUNTPOINT / name for name in (["daemons"] if self.version == 2 else self.roots)]

    @property
    def mount(self) -> str:
        """The commands that mount the node's own cgroups over the host's: it sees no others."""
        if self.version == 2:
            return f"umount --lazy {_MOUNTPOINT}\nmount -t cgroup2 none {_MOUNTPOINT}"
        lines = [f"mount -t tmpfs none {_MOUNTPOINT}"]
        for name, where in zip(self.roots, self.of_daemons, strict=True):
            lines += [f"mkdir {where}", f"mount -t cgroup -o {name} none {where}"]
        return "\n".join(lines)

    def make(self, folder: Path, node: str) -> None:
        """Make the cgroups of a node."""
        # slurmd makes a scope below system.slice, which systemd makes elsewhere.
        parts = ("daemons", "system.slice") if self.version == 2 else ("",)
        for own in self.of_node(folder, node):
            for part in parts:
                (own / part).mkdir(parents=True, exist_ok=True)

    def thaw(self, folder: Path, node: str) -> None:
        """Let frozen processes on a node go on or end, as who froze them may have been killed."""
        file, words = {1: ("freezer.state", "THAWED"), 2: ("cgroup.freeze", "0")}[self.version]
        # A cgroup may go just now.
        for path, _, files in chain.from_iterable(map(os.walk, self.of_node(folder, node))):
            if file in files:
                with suppress(OSError):
                    Path(path, file).write_text(words)

    def remove(self, folder: Path) -> bool:
        """Remove the cgroups of a cluster; return False while processes are in them."""
        try:
            for path, _, _ in chain.from_iterable(
                os.walk(one, topdown=False) for one in self._of_cluster(folder)
            ):
                Path(path).rmdir()
        except OSError:
            return False
        return True

    def _of_cluster(self, folder: Path) -> list[Path]:
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        return [Path(root, _ALL, name) for root in self.roots.values()]


def hierarchy(*controllers: str) -> Hierarchy | None:
    """Return the cgroups that this host has; None: there are none that Slurm can use.

    Version 1 has to have these ``controllers`` beside the freezer.
    """
    needed, roots = {"freezer", *controllers}, dict[str, str]()
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for _, where, kind, options, *_ in mounts:
        words = options.split(",")
        if not os.access(where, os.W_OK) or "ro" in words:
            continue
        if kind == "cgroup2" and where == str(_MOUNTPOINT):
            return Hierarchy(2, {"": where})
        if kind == "cgroup":
            roots = dict.fromkeys(needed.intersection(words), where) | roots
    return Hierarchy(1, roots) if needed == set(roots) else None


def holder(cgroups: Hierarchy | None, network: bool, folder: Path, node: str) -> list[str]:
    """Return what starts a node's first process, which keeps its namespaces and buries orphans.

    It starts in the root of the node's own cgroups. When all is ready it makes the file
    run/NODE.ready. The cluster's ``folder`` has the node's /etc/hosts, and the socket
    that it gets at MUNGE's default path.
    """
    options = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    steps = ["set -e", _OWN.format(folder=folder, node=node)]
    if cgroups is not None:
        steps += [cgroups.mount, *(f"echo $$ > {one}/cgroup.procs" for one in cgroups.of_daemons)]
    steps += [f"touch {folder}/run/{node}.ready", "trap exit TERM", "sleep infinity & wait"]
    first = ["bash", "-c", "\n".join(steps)]
    if cgroups is not None:
        first = _starting_in(cgroups.of_node(folder, node), ["unshare", "--cgroup", *first])
    return ["unshare", *options, *["--net"] * network, *first]


# c10d distinguishes agents by host name and process id. Each node has its own process ids, so those
# of two nodes may be equal: each needs a host name. Names of semaphores contain the process id, so
# each needs a /dev/shm. A configless slurmd reads and writes /run.
_OWN = """echo {node} > /proc/sys/kernel/hostname
mount --bind {folder}/hosts /etc/hosts
mount -t tmpfs -o mode=1777 none /dev/shm
mount -t tmpfs -o mode=755 none /run
mkdir /run/munge /run/slurm
ln -s {folder}/munge/socket /run/munge/munge.socket.2"""


def knowing(hosts: Path, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command with this file as its /etc/hosts."""
    mount = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, str(hosts), *command]


def within(first: int, cgroups: Sequence[Path], command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command in ``cgroups``, on the node of a first process.

    The command is a child of the process that this starts.
    """
    own = ["nsenter", "--cgroup=/proc/1/ns/cgroup", "--", *command]
    spaces = ("--mount", "--uts", "--root", "--wd=/", "--pid", "--net")
    return ["nsenter", f"--target={first}", *spaces, "--", *_starting_in(cgroups, own)]


def kept_up(command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command, and again 2 s after each end, like systemd.

    At SIGTERM it ends the command's process group, and then itself.
    """
    return [sys.executable, "-IS", "-c", _KEPT_UP, *command]


_KEPT_UP = """
import contextlib, os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
while True:
    child = subprocess.Popen(sys.argv[1:], process_group=0)
    try:
        child.wait()
    except SystemExit:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise
    time.sleep(2)
"""


# A slurmd refuses a cgroup with processes that it cannot see. A process must join a cgroup before
# it enters the cgroup's namespace, because it may not move across the border of that.
def _starting_in(cgroups: Sequence[Path], command: Sequence[str]) -> list[str]:
    for one in cgroups:
        command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(one), *command]
    return [*command]
