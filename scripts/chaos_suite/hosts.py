"""The keeper and the controller as services on the two control hosts of a private cluster.

What slurmctld does there, and how a host loses its power, is in ``labcluster/cluster``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_token
from scripts.labcluster import namespaces
from scripts.labcluster.cluster import CONTROL_HOSTS, Cluster, free_ports
from scripts.labcluster.lab import Tell, started_lab
from scripts.labcluster.processes import end
from scripts.labcluster.site import QUICK, Site, site_on, toml
from scripts.labcluster.waiting import wait_until

_USER = "slurm"
_RESTART_S = 2.0  # systemd's RestartSec in packaging/systemd


@dataclass
class TwoHosts:
    """A cluster with two control hosts, and our services on both of them."""

    site: Site
    addresses: dict[str, str]  # of the keeper, HOST:PORT by host
    shared: Path
    ended: int = 0  # how often slurmctld ended by itself, and was started again
    _commands: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # by host and name
    _seen_ended_s: dict[str, float] = field(default_factory=dict)  # services, by name

    @property
    def _cluster(self) -> Cluster:
        return self.site.lab.cluster

    def start(self, host: str) -> None:
        """Start our services on a host, as SlurmUser."""
        self._commands[host] = self._commands_on(host)
        for name, command in self._commands[host].items():
            self._cluster.start_daemon(name, *command, forks=True)

    def stop(self, host: str) -> None:
        """Stop our services on a host, as an admin does."""
        for name in reversed(self._commands.pop(host, {})):  # a controller would start a keeper
            end([self._cluster.daemons.pop(name)])

    def kill(self, host: str) -> None:
        """Let a host lose its power, with all that runs there."""
        self._cluster.kill_control_host(host)
        for name in self._commands.pop(host):
            del self._cluster.daemons[name]

    def revive(self, host: str) -> None:
        """Switch a host on; slurmctld and our services are started there, as at each boot."""
        self._cluster.start_control_host(host)
        self._cluster.start_slurmctld(on=host)
        self.start(host)

    def tend(self) -> None:
        """Do what systemd does all the time: start what has ended again, ours a moment later."""
        daemons, now_s = self._cluster.daemons, time.monotonic()
        for host, commands in self._commands.items():
            if not daemons[f"slurmctld-{host}"].alive:
                self.ended += 1
                self._cluster.start_slurmctld(on=host)
            for name, command in commands.items():
                if daemons[name].alive:
                    self._seen_ended_s.pop(name, None)
                elif now_s - self._seen_ended_s.setdefault(name, now_s) >= _RESTART_S:
                    self._cluster.start_daemon(name, *command, forks=True)

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

    def log(self, host: str) -> Path:
        """Return what the controller on a host says."""
        return self.site.lab.dir / "log" / f"controller-{host}.out"

    def _commands_on(self, host: str) -> dict[str, list[str]]:
        lab = self.site.lab
        state = lab.dir / f"our-{host}"
        state.mkdir(exist_ok=True)
        shutil.chown(state, _USER, _USER)
        listen = ",".join(self.addresses.values())
        munge = ("--method", "munge", "--munge-socket", f"{lab.dir}/munge/socket")
        both = {
            "keeper": ("--listen", listen, *munge, "--shared", str(self.shared)),
            "controller": ("--mode", "site"),
        }
        as_user = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
        path = f"{lab.dir}/plugin:{lab.env['PATH']}"  # bftrainer-grow
        program = (f"HOME={lab.home(_USER)}", f"PATH={path}", str(self.site.stage.program))
        first = self._cluster.control_host(host).pid
        return {
            f"{verb}-{host}": namespaces.within(
                first, None, (*as_user, "env", *program, verb, "--state", str(state), *words)
            )
            for verb, words in both.items()
        }


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
