"""Keeper, controller and reader as services on the two control hosts of a private cluster.

What slurmctld does there, and how a host loses its power, is in ``labcluster/cluster``.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.client import KeeperClient
from bftrainer_slurm.keeper.home import read_token
from scripts.labcluster import namespaces
from scripts.labcluster.cluster import CONTROL_HOSTS, Cluster, free_ports
from scripts.labcluster.keeper import published
from scripts.labcluster.lab import Tell, started_lab
from scripts.labcluster.processes import child_of, send
from scripts.labcluster.site import QUICK, Site, site_on
from scripts.labcluster.users import as_user, give
from scripts.labcluster.waiting import wait_until
from tests.chaos.world import World, service_on

_USER = "slurm"
_FRESH_S = 6.0
_VERBS = {"keeper": ("--site",), "controller": ("--mode", "site"), "reader": ("--site",)}


@dataclass(frozen=True)
class TwoHosts:
    """A cluster with two control hosts, and our services on both of them."""

    site: Site
    addresses: dict[str, str]  # of the keeper, HOST:PORT by host
    shared: Path

    @property
    def cluster(self) -> Cluster:
        return self.site.lab.cluster

    def start(self, host: str) -> None:
        """Start our services on a host, as SlurmUser; systemd starts them again as they end."""
        lab = self.site.lab
        state = lab.dir / f"our-{host}"
        state.mkdir(exist_ok=True)
        give(state, _USER)
        path = f"{lab.dir}/plugin:{lab.env['PATH']}"  # bftrainer-grow
        program = (f"HOME={lab.home(_USER)}", f"PATH={path}", str(self.site.stage.program))
        first = self.cluster.host(host).pid
        for verb, words in _VERBS.items():
            command = (*as_user(_USER), "env", *program, verb, "--state", str(state), *words)
            within = namespaces.within(first, (), namespaces.kept_up(command))
            self.cluster.start_daemon(f"{verb}-{host}", *within, forks=True)

    def revive(self, host: str) -> None:
        """Switch a host on; slurmctld and our services are started there, as at a boot."""
        self.cluster.add_host(host)
        self.cluster.start_slurmctld(on=host)
        self.start(host)

    def slurmctld_answers(self, host: str) -> bool:
        """Return whether a host's slurmctld answers, at work or standing by."""
        return f"at {host} is UP" in self.site.run("scontrol", "ping", check=False).stdout

    def restart_slurmctld(self, host: str) -> None:
        """End a host's slurmctld, though it hangs; it is started again, as by systemd."""
        kept_up = self.cluster.daemons[f"slurmctld-{host}"]
        send(child_of(kept_up, _FRESH_S), signal.SIGKILL)

    def published(self) -> tuple[str | None, dict[str, Any]]:
        """Return the host whose controller has just published something, and what it published."""
        for host, address in self.addresses.items():
            status = published(KeeperClient(address, read_token(self.shared)))
            if status.get("age_s", _FRESH_S) < _FRESH_S:
                return host, status
        return None, {}

    def leader(self) -> str | None:
        return self.published()[0]


@contextmanager
def started_hosts(nodes: int, seed: int, tell: Tell) -> Iterator[tuple[World, TwoHosts]]:
    """Start a cluster with two control hosts and our services on both; needs root.

    ``nodes`` are for trainers. All of it is ended, whatever happens.
    """
    port = f":{free_ports(1)[0]}"
    with started_lab(nodes, keeper=port, networks=True, backup=True, tell=tell) as lab:
        site = site_on(lab, keeper="")
        addresses = {name: f"{lab.cluster.address_of(name)}{port}" for name in CONTROL_HOSTS}
        hosts = TwoHosts(site, addresses, lab.dir / "state" / "bftrainer")
        hosts.shared.mkdir(0o700)
        give(hosts.shared, _USER)
        both = {"listen": ",".join(addresses.values()), "shared": str(hosts.shared)}
        site.configure({**QUICK, **both})
        for name in CONTROL_HOSTS:
            hosts.start(name)
            wait_until(lambda: hosts.leader() == CONTROL_HOSTS[0])
        status = lambda: hosts.published()[1]  # noqa: E731
        yield World(site, service_on(site), random.Random(seed), tell, status), hosts
