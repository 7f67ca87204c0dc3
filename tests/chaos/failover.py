"""A fault of its own: the first of two control hosts is killed, and the second takes over.

Slurm's answers and the trainers' logs say what became of the trainers. Our controller is only asked
on which host it works. How a host loses its power is in ``labcluster/cluster``.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
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
from tests.chaos.faults.fault import Course, Fault
from tests.chaos.observe import Snapshot
from tests.chaos.patience import Patience
from tests.chaos.world import World, service_on

FIRST, SECOND = CONTROL_HOSTS
NODES = 6
EACH = 2  # trainers of a kind
LIMIT_S = 60.0  # of an idle machine, from the start of the second slurmctld until all train
_PATIENCE_S = 300.0
_STANDS_BY_S = 60.0
_SAVED_S = 12.0  # slurmctld writes down every few seconds what it has done
_LOOK_S = 0.05  # between two looks at what is timed
_TRAINS_S = 2.0  # a trainer that made a step within this time trains
_FRESH_S = 6.0  # a status that is younger has just been published
_PRIMARY = "Running as primary controller"
_USER = "slurm"
_VERBS = {"keeper": ("--site",), "controller": ("--mode", "site"), "reader": ("--site",)}


@dataclass(frozen=True)
class TwoHosts:
    """A cluster with two control hosts, and keeper, controller and reader on both of them."""

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

    def published(self) -> tuple[str | None, dict[str, Any]]:
        """Return the host whose controller has just published something, and what it published."""
        for host, address in self.addresses.items():
            status = published(KeeperClient(address, read_token(self.shared)))
            if status.get("age_s", _FRESH_S) < _FRESH_S:
                return host, status
        return None, {}

    def starts(self, host: str) -> int:
        """Return how often the slurmctld of a host has begun to work."""
        log = self.cluster.folder / "log" / f"slurmctld-{host}.log"
        return log.read_text(errors="replace").count(_PRIMARY) if log.exists() else 0

    def stands_by(self) -> bool:
        """Return whether the second slurmctld answers, as it does when it does not work."""
        return f"at {SECOND} is UP" in self.site.run("scontrol", "ping", check=False).stdout


@contextmanager
def started_hosts(seed: int, tell: Tell) -> Iterator[tuple[World, Fault]]:
    """Start a cluster with two control hosts and our services on both; needs root.

    Yield it, and the fault. All of it is ended, whatever happens.
    """
    port = f":{free_ports(1)[0]}"
    with started_lab(NODES, keeper=port, networks=True, backup=True, tell=tell) as lab:
        site = site_on(lab, keeper="")
        addresses = {name: f"{lab.cluster.address_of(name)}{port}" for name in CONTROL_HOSTS}
        hosts = TwoHosts(site, addresses, lab.dir / "state" / "bftrainer")
        hosts.shared.mkdir(0o700)
        give(hosts.shared, _USER)
        both = {"listen": ",".join(addresses.values()), "shared": str(hosts.shared)}
        site.configure({**QUICK, **both})
        for name in CONTROL_HOSTS:
            hosts.start(name)
            wait_until(lambda: hosts.published()[0] == FIRST)
        status = lambda: hosts.published()[1]  # noqa: E731
        world = World(site, service_on(site), random.Random(seed), tell, status)
        yield world, lambda world: _host_dies(world, hosts)


def _host_dies(world: World, hosts: TwoHosts) -> Course:
    """Kill the first host while trainers wait for nodes, and free nodes when it is dead."""
    blocker = _block(world)
    _settle(world)
    before = _places(_answered(world))
    world.tell(f"killing {FIRST}: {', '.join(before)}")
    figures = _take_over(world, hosts, blocker)
    after = _places(_answered(world))
    for place, start in before.items():
        if after.get(place) != start:
            words = f"{place} ran since {start}, and now {after.get(place)}"
            world.outcome.violations[words] = None
    yield ", ".join(f"{name} {value:.1f}" for name, value in figures.items()), 0.0
    _give_back(world, hosts)


def _take_over(world: World, hosts: TwoHosts, blocker: str) -> dict[str, float]:
    """Kill the first host, free the nodes, and return how long each thing took."""
    starts, since_s, figures = hosts.starts(SECOND), time.monotonic(), dict[str, float]()
    hosts.cluster.kill_host(FIRST)

    def noted(name: str, condition: Callable[[], bool]) -> None:
        def look() -> bool:
            if "leads_s" not in figures:  # until then it must not matter that all are gone
                figures["pause_s"] = max(figures.get("pause_s", 0.0), _pause_s(world))
            return condition()

        often = lambda _: world.wait(_LOOK_S)  # noqa: E731
        wait_until(look, _PATIENCE_S, f"{name} has not come", often)
        figures[name] = time.monotonic() - since_s

    noted("second_s", lambda: hosts.starts(SECOND) > starts)
    since_s, patience = time.monotonic(), Patience(LIMIT_S)
    # A slurmctld that has just started may not answer yet.
    scancel = ("scancel", blocker)
    cancelled = lambda: world.run(*scancel, timeout_s=_PATIENCE_S).returncode == 0  # noqa: E731
    wait_until(cancelled, pause=world.wait)
    noted("leads_s", lambda: hosts.published()[0] == SECOND or patience.over)
    noted("grown_s", lambda: len(world.look().mine()) == NODES or patience.over)
    noted("trains_s", lambda: _trains_on(world, NODES) or patience.over)
    if patience.over:
        words = f"not all train again after {figures['trains_s']:.0f} s"
        world.outcome.violations[words] = None
    return figures


def _give_back(world: World, hosts: TwoHosts) -> None:
    """Switch the first host on again; our services follow slurmctld there by themselves.

    The second slurmctld has to stand by again. That of Slurm 22.05.8 sometimes hangs as it gives
    back: main() joins the thread that purges old jobs, which waits for a signal that was sent
    before. An admin ends it, and systemd starts it again.
    """
    starts = hosts.starts(FIRST)
    hosts.cluster.add_host(FIRST)
    hosts.cluster.start_slurmctld(on=FIRST)
    hosts.start(FIRST)
    wait_until(lambda: hosts.starts(FIRST) > starts, _PATIENCE_S, pause=world.wait)
    wait_until(lambda: hosts.published()[0] == FIRST, _PATIENCE_S, pause=world.wait)
    try:
        wait_until(hosts.stands_by, _STANDS_BY_S, pause=world.wait)
    except TimeoutError:
        world.tell(f"slurmctld of {SECOND} hangs, as Slurm's own sometimes does: ending it")
        send(child_of(hosts.cluster.daemons[f"slurmctld-{SECOND}"], _FRESH_S), signal.SIGKILL)
        wait_until(hosts.stands_by, _PATIENCE_S, "it does not stand by", pause=world.wait)


def _block(world: World) -> str:
    """Let an ordinary job have all nodes but one of each trainer; return its id.

    With other nodes a trainer might be left with none: a plan does not stop one trainer for another
    that gains no more.
    """
    kept = {one.array: one.node for one in _answered(world).mine()}.values()
    nodes = [node for node in world.nodes if node not in kept]
    words = ("-w", ",".join(nodes), f"-N{len(nodes)}", "--exclusive", "-t", "60", "-J", "ordinary")
    script = "#!/bin/sh\nsleep 3600\n"
    return str(world.site.lab.sbatch(*words, "-o", "/dev/null", script=script))


def _settle(world: World) -> None:
    """Wait until each trainer trains on one node, and Slurm has written that down."""
    arrays = sorted(one.array for one in world.trainers)

    def settled() -> bool:
        there = sorted(one.array for one in world.look().mine())
        return there == arrays and _trains_on(world, len(arrays))

    for _ in range(2):
        wait_until(settled, _PATIENCE_S, "the trainers do not settle", world.wait)
        world.wait(_SAVED_S)


def _answered(world: World) -> Snapshot:
    """Look until Slurm answers; return what was seen."""
    world.wait_until(lambda: world.look().elements is not None, _PATIENCE_S)
    return world.look()


def _places(seen: Snapshot) -> dict[str, str]:
    """Return since when each element runs."""
    return {f"{one} on {one.node}": one.start for one in seen.mine()}


def _trains_on(world: World, nodes: int) -> bool:
    """Return whether this many nodes train, over all trainers, and no trainer stands still."""
    last = [one.training.newest for one in world.look().trainers]
    worlds = sum(one.world for one in last if one is not None)
    return worlds == nodes and _pause_s(world) < _TRAINS_S


def _pause_s(world: World) -> float:
    """Return how long ago the slowest of the trainers made its last step."""
    for one in world.trainers:
        one.training.read()
    last = [one.training.newest for one in world.trainers]
    return time.monotonic() - min(0.0 if one is None else one.last_s for one in last)
