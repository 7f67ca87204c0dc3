"""The keeper and the controller as services on the two control hosts of a private cluster.

What slurmctld does there, and how a host loses its power, is in ``labcluster/cluster``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_token
from scripts.labcluster import namespaces
from scripts.labcluster.cluster import CONTROL_HOSTS, free_ports
from scripts.labcluster.lab import Tell, started_lab
from scripts.labcluster.site import QUICK, Site, site_on, toml
from scripts.labcluster.waiting import wait_until

_USER = "slurm"
_RESTART_S = 2.0  # systemd's RestartSec in packaging/systemd
_END_S = 10.0


@dataclass
class Unit:
    """One of our services on one host; it is started again when it ends, until ``stop``."""

    site: Site
    host: str
    words: tuple[str, ...]  # after ``bftrainer``
    _process: subprocess.Popen[bytes] | None = None
    _ended_s: float | None = None

    @property
    def log(self) -> Path:
        """What it says."""
        return self.site.lab.dir / "log" / f"{self.words[0]}-{self.host}.log"

    def start(self) -> None:
        """Start it as SlurmUser on its host."""
        lab = self.site.lab
        first = lab.cluster.control_host(self.host).pid
        as_user = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
        command = [*as_user, str(self.site.stage.program), *self.words]
        path = f"{lab.dir}/plugin:{lab.env['PATH']}"  # bftrainer-grow
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                namespaces.within(first, None, command),
                env={**lab.env, "HOME": str(lab.home(_USER)), "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def tend(self) -> None:
        """Start it again a moment after it has ended."""
        if self._process is None or self._process.poll() is None:
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = time.monotonic()
        elif time.monotonic() - self._ended_s >= _RESTART_S:
            self._ended_s = None
            self.start()

    def stop(self) -> None:
        """End it as an admin does, in the end by force."""
        if self._process is None:
            return
        for child in _children(self._process.pid):  # nsenter hands no signal on
            with suppress(ProcessLookupError):
                os.kill(child, 15)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        for child in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, 9)
        self._process.wait()
        self._process = None


@dataclass
class TwoHosts:
    """A cluster with two control hosts, and our services on both of them."""

    site: Site
    addresses: dict[str, str]  # of the keeper, HOST:PORT by host
    shared: Path
    units: dict[str, list[Unit]] = field(default_factory=dict)
    ended: int = 0  # how often slurmctld ended by itself, and was started again

    def start(self, host: str) -> None:
        """Start our services on a host."""
        self.units[host] = [Unit(self.site, host, words) for words in self._commands(host)]
        for unit in self.units[host]:
            unit.start()

    def stop(self, host: str) -> None:
        """Stop our services on a host, as an admin does."""
        for unit in reversed(self.units.pop(host, [])):  # a controller would start a keeper
            unit.stop()

    def kill(self, host: str) -> None:
        """Let a host lose its power, with all that runs there."""
        self.units.pop(host)
        self.site.lab.cluster.kill_control_host(host)

    def revive(self, host: str) -> None:
        """Switch a host on; slurmctld and our services are started there, as at each boot."""
        self.site.lab.cluster.start_control_host(host)
        self.site.lab.cluster.start_slurmctld(on=host)
        self.start(host)

    def tend(self) -> None:
        """Do what systemd does all the time."""
        cluster = self.site.lab.cluster
        for host, units in self.units.items():
            if not cluster.daemons[f"slurmctld-{host}"].alive:
                self.ended += 1
                cluster.start_slurmctld(on=host)
            for unit in units:
                unit.tend()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.tend()
            time.sleep(0.1)

    def leader(self) -> str | None:
        """Return the host whose controller has published within the last seconds."""
        return self._published()[0]

    def status(self) -> dict[str, Any]:
        """Return what that controller has published; no trainers where there is none."""
        return self._published()[1]

    def _published(self) -> tuple[str | None, dict[str, Any]]:
        for host, address in self.addresses.items():
            with suppress(KeeperError):
                age_s, status = KeeperClient(address, read_token(self.shared)).status()
                if status is not None and age_s < 6.0:
                    return host, status
        return None, {"trainers": []}

    def _commands(self, host: str) -> list[tuple[str, ...]]:
        folder = self.site.lab.dir
        state = folder / f"our-{host}"
        state.mkdir(exist_ok=True)
        shutil.chown(state, _USER, _USER)
        listen = ",".join(self.addresses.values())
        munge = ("--method", "munge", "--munge-socket", f"{folder}/munge/socket")
        shared = ("--shared", str(self.shared))
        return [
            ("keeper", "--state", str(state), "--listen", listen, *munge, *shared),
            ("controller", "--mode", "site", "--state", str(state)),
        ]


@contextmanager
def started_hosts(nodes: int, tell: Tell) -> Iterator[TwoHosts]:
    """Start a cluster with two control hosts and our services on both; needs root.

    ``nodes`` are for trainers. All of it is ended, whatever happens.
    """
    port = f":{free_ports(1)[0]}"
    with started_lab(nodes, keeper=port, networks=True, backup=True, tell=tell) as lab:
        site = site_on(lab, keeper="")
        addresses = {name: f"{lab.cluster.host_address(name)}{port}" for name in CONTROL_HOSTS}
        shared = lab.dir / "state" / "bftrainer"
        settings = {
            **QUICK,
            "listen": ",".join(addresses.values()),
            "shared": str(shared),
            "munge_socket": str(lab.dir / "munge" / "socket"),
        }
        (lab.dir / "bftrainer.toml").write_text(toml(settings))
        hosts = TwoHosts(site, addresses, shared)
        try:
            first, second = CONTROL_HOSTS
            hosts.start(first)
            wait_until(lambda: hosts.leader() == first, pause=hosts.wait)
            hosts.start(second)
            yield hosts
        finally:
            for name in CONTROL_HOSTS:
                hosts.stop(name)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]
