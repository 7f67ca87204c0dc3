"""Starts, finds and ends a private cluster; a file in its folder says what runs."""

from __future__ import annotations

import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from scripts.benchkit.logs import last_lines
from scripts.labcluster import LabError as LabError
from scripts.labcluster import OptionsError, accounting, gpus, namespaces, networks, plugin, users
from scripts.labcluster.configuration import Options, cgroup_conf, gres_conf, slurm_conf
from scripts.labcluster.processes import (
    Daemon,
    child_of,
    end,
    go_on,
    launch,
    prefer_session,
    processes_with,
    send,
)
from scripts.labcluster.waiting import wait_until

_NOTE = "lab.json"
_WITHIN_S = 240.0
_PRIORITY = -10
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo")
_LOOPBACK = IPv4Network("127.0.0.0/8")
CONTROL_HOSTS = ("c1", "c2")  # of a cluster whose slurmctld has a backup
_HERE = str(networks.host_of(_LOOPBACK))
_SLURM_KEY = "slurm.key"  # where there is no MUNGE
_OUR_KEY = "bftrainer.key"
_SWITCH = "network"  # the daemon that keeps the switch's namespace


@dataclass
class Cluster:
    """A private cluster that runs in ``folder``."""

    folder: Path
    nodes: int
    daemons: dict[str, Daemon] = field(default_factory=dict)
    subnet: IPv4Network | None = None  # of the nodes, if they have their own networks
    cgroups: namespaces.Hierarchy | None = None  # that Slurm uses; None under linuxproc

    @property
    def address(self) -> str:
        """The address at which the nodes reach this host."""
        return _HERE if self.subnet is None else str(networks.host_of(self.subnet))

    @property
    def node_names(self) -> list[str]:
        """The nodes' names, without nodes that were added later."""
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that its users need."""
        variables = {
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            "BFTRAINER_LAB": str(self.folder),
            # Otherwise gloo looks up the host's name, which may be unknown.
            "GLOO_SOCKET_IFNAME": "lo" if self.subnet is None else networks.INTERFACE,
            "TMPDIR": f"{self.folder}/tmp",  # files that jobs leave are removed with the cluster
        }
        if os.getuid() != 0:  # the nodes have no host names; plugstack.conf has this too
            variables["BFTRAINER_LOCAL_ADDRESS"] = _HERE
        return variables

    def save(self) -> None:
        """Write to a file which processes are ours, and what else we need to end them."""
        daemons = {name: [one.pid, one.start] for name, one in self.daemons.items()}
        subnet = self.subnet and str(self.subnet)
        cgroups = self.cgroups and asdict(self.cgroups)
        note = {"nodes": self.nodes, "subnet": subnet, "cgroups": cgroups}
        (self.folder / _NOTE).write_text(json.dumps(note | {"daemons": daemons}))

    def start_daemon(self, name: str, *command: str, forks: bool = False) -> None:
        """Start a daemon and save it at once; ``forks``: the daemon is the command's child."""
        log = self.folder / "log" / f"{name}.out"
        # On a real cluster jobs do not slow the daemons down; here all share one host.
        root = os.getuid() == 0
        priority = ("nice", "-n", str(_PRIORITY)) if root else ()
        conf = {"SLURM_CONF": f"{self.folder}/slurm.conf"}
        daemon = launch((*priority, *command), log, conf)
        self.daemons[name] = child_of(daemon, _WITHIN_S) if forks else daemon
        if root:
            prefer_session(self.daemons[name], _PRIORITY)
        self.save()

    def start_munged(self) -> None:
        """Start munged, and wait until it listens."""
        munge = self.folder / "munge"
        (munge / "socket").unlink(missing_ok=True)
        self.start_daemon(
            *("munged", _program("munged"), "--foreground"),
            *(f"--socket={munge}/socket", f"--key-file={munge}/key", f"--pid-file={munge}/pid"),
            *(f"--log-file={munge}/log", f"--seed-file={munge}/seed"),
        )
        wait_until((munge / "socket").exists, _WITHIN_S, "munged makes no socket")

    def start_slurmctld(self, *options: str, on: str | None = None) -> None:
        """Start slurmctld, with its saved state unless ``options`` say otherwise.

        ``on`` is one of ``CONTROL_HOSTS``, where the cluster has them.
        """
        conf = ("-f", f"{self.folder}/slurm.conf")
        command = [_program("slurmctld"), "-D", *options, *conf]
        if on is not None:
            command += ["-L", f"{self.folder}/log/slurmctld-{on}.log"]
            command = namespaces.within(self.host(on).pid, (), namespaces.kept_up(command))
            self.start_daemon(f"slurmctld-{on}", *command, forks=True)
            return
        if os.getuid() == 0:  # it answers sruns on the nodes by host name
            command = namespaces.knowing(self.folder / "hosts", command)
        self.start_daemon("slurmctld", *command)

    def host(self, name: str) -> Daemon:
        """Return a node's or control host's first process; all that runs there ends with it."""
        return self.daemons[_host(name)]

    def address_of(self, name: str) -> IPv4Address:
        """Return the address of a node or control host."""
        number = int(name[1:]) + (self.nodes if name in CONTROL_HOSTS else 0)
        return networks.node_of(self.subnet or _LOOPBACK, number)

    def add_host(self, name: str) -> str:
        """Make a host's namespaces, name it, and connect it; return its address."""
        if os.getuid() != 0:
            return _HERE
        address, hosts = self.address_of(name), self.folder / "hosts"
        line = f"{address} {name}\n"
        if line not in hosts.read_text():
            with hosts.open("a") as file:
                file.write(line)
        ready, network = self.folder / "run" / f"{name}.ready", self.subnet is not None
        ready.unlink(missing_ok=True)
        if self.cgroups is not None:
            self.cgroups.make(self.folder, name)
        command = namespaces.holder(self.cgroups, network, self.folder, name)
        self.start_daemon(_host(name), *command, forks=True)
        wait_until(ready.exists, _WITHIN_S, f"the namespaces of {name} cannot be made")
        if network:
            networks.plug_in(self.daemons[_SWITCH].pid, self.host(name).pid, name, address)
        return str(address)

    def kill_host(self, name: str) -> None:
        """End all that runs on a node or control host at once, as if it had lost its power."""
        first = self.host(name)
        for other in [other for other in self.daemons if f"-{other}".endswith(f"-{name}")]:
            go_on(self.daemons.pop(other))  # its parent must run, to reap it
        self.save()
        send(first, signal.SIGKILL)

        def gone() -> bool:
            if self.cgroups is not None:
                self.cgroups.thaw(self.folder, name)
            return not first.alive

        wait_until(gone, _WITHIN_S, f"{name} does not end")
        if self.subnet is not None:
            networks.unplug(self.daemons[_SWITCH].pid, name)

    def start_slurmd(self, node: str, called: str | None = None, booted: bool = False) -> None:
        """Start the slurmd of one node; ``called`` is its name in slurm.conf, if it differs.

        ``booted``: it tells slurmctld that its node has just booted.
        """
        command = [_program("slurmd"), "-D", "-N", called or node, *self._conf_of_slurmd()]
        command += ["-b"] if booted else []
        host = self.daemons.get(_host(node))
        if host is not None:
            cgroups = () if self.cgroups is None else self.cgroups.of_daemons
            command = namespaces.within(host.pid, cgroups, command)
        self.start_daemon(node, *command, forks=host is not None)

    def _conf_of_slurmd(self) -> tuple[str, ...]:
        conf = self.folder / "slurm.conf"
        text = conf.read_text()
        if "enable_configless" not in text:
            return ("-f", str(conf))
        port = re.search(r"^SlurmctldPort=(\d+)", text, re.MULTILINE)
        assert port is not None
        return ("--conf-server", f"{self.address}:{port[1]}")

    def disturb(self, node: str, what: str) -> None:
        """Stop, start or hang the slurmd of a node, cut the node off, or undo a hang or cut.

        A node that is cut off reaches no other node; it must have its own network.
        """
        if node not in self.daemons or not re.fullmatch(r"n[0-9]+", node):
            raise LabError(f"no node '{node}'; there are n1 to n{self.nodes}")
        daemon = self.daemons[node]
        if what == "stop":
            end([daemon])
        elif what == "start" and not daemon.alive:
            self.start_slurmd(node)
        elif what == "hang":
            send(daemon, signal.SIGSTOP)
        elif what in ("cut", "mend"):
            go_on(daemon)
            if self.subnet is not None:
                networks.set_link(self.daemons[_SWITCH].pid, node, up=what == "mend")
            elif what == "cut":
                raise LabError("its nodes have no networks of their own to cut: lab up --networks")

    def make_switch(self) -> None:
        """Make the network that connects the nodes."""
        self.start_daemon(_SWITCH, *networks.HOLDER)
        holder = self.daemons[_SWITCH].pid
        here, there = (Path(f"/proc/{pid}/ns/net") for pid in ("self", holder))
        apart = lambda: there.readlink() != here.readlink()  # noqa: E731
        wait_until(apart, _WITHIN_S, "the nodes' network cannot be made")
        self.subnet = networks.make_switch(holder)
        self.save()

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands."""
        variables = os.environ | self.environment
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise LabError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout


def find(folder: Path) -> Cluster | None:
    """Return the cluster in this folder; None: there is none."""
    try:
        note = json.loads((folder / _NOTE).read_text())
    except OSError:
        return None
    daemons = {name: Daemon(*values) for name, values in note["daemons"].items()}
    subnet = IPv4Network(note["subnet"]) if note["subnet"] else None
    cgroups = namespaces.Hierarchy(**note["cgroups"]) if note["cgroups"] else None
    return Cluster(folder, note["nodes"], daemons, subnet, cgroups)


def up(folder: Path, options: Options) -> Cluster:
    """Start a cluster and wait until all its nodes are idle; if that fails, end it again."""
    _check(options)
    if folder.exists() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty; choose another folder with --dir")
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    lab = Cluster(folder, options.nodes)
    try:
        _lay_out(lab, options)
        lab.save()
        _start(lab, options)
        _wait_for_nodes(lab)
    except (OSError, LabError, subprocess.SubprocessError) as error:
        log = _last_words(folder)
        down(lab)
        raise LabError(f"the cluster did not start: {error}\n{log}") from error
    except KeyboardInterrupt:
        down(lab)
        raise
    return lab


def down(lab: Cluster) -> None:
    """End everything that runs in and for the cluster, and remove its folder."""
    # munged, and the processes that keep the nodes' namespaces, end last: all others need them.
    kept = ("munged", _SWITCH, _host(""))
    end([one for name, one in lab.daemons.items() if not name.startswith(kept)])
    if lab.cgroups is not None:
        for node in lab.node_names:
            lab.cgroups.thaw(lab.folder, node)
    # Jobs and their slurmstepds outlive their slurmd.
    end(processes_with(f"SLURM_CONF={lab.folder}/slurm.conf"), within_s=3.0)
    end(list(lab.daemons.values()))
    if (cgroups := lab.cgroups) is not None:  # a process that was killed may take a moment
        removed = lambda: cgroups.remove(lab.folder)  # noqa: E731
        wait_until(removed, _WITHIN_S, "the cgroups of the nodes are still used")
    shutil.rmtree(lab.folder, ignore_errors=True)
    if os.getuid() == 0:
        users.release(lab.folder)


def _lay_out(lab: Cluster, options: Options) -> None:
    folder, me = lab.folder, pwd.getpwuid(os.getuid()).pw_name
    slurm = "slurm" if os.getuid() == 0 else me
    if os.getuid() == 0 and not options.linuxproc:
        lab.cgroups = namespaces.hierarchy(*["devices"] * options.confine)
    _make_folders(lab, slurm)
    if options.auth_slurm and installed_version() < (23, 11):
        raise LabError("--auth-slurm needs Slurm 23.11 or newer")
    for name in (_OUR_KEY, *[_SLURM_KEY] * options.auth_slurm):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(os.urandom(64).hex())
        users.give(folder / name, slurm)
    promised = {int(port) for port in re.findall(r":(\d+)", str(options.keeper))}
    *ports, dbd, database = free_ports(options.nodes + 3, promised)
    if options.networks:
        lab.make_switch()
    host = socket.gethostname().partition(".")[0]
    controllers = {host: lab.address}
    if options.backup:
        controllers = {name: lab.add_host(name) for name in CONTROL_HOSTS}
    addresses = [lab.add_host(node) for node in lab.node_names]
    if options.qos:
        accounting.lay_out(folder, slurm, dbd, database)
        options = replace(options, conf=(*accounting.settings(folder, dbd), *options.conf))
    version = None if lab.cgroups is None else lab.cgroups.version
    conf = slurm_conf(
        *(folder, options, controllers, slurm, me, ports, host, addresses, version is not None)
    )
    (folder / "slurm.conf").write_text(conf)
    (folder / "cgroup.conf").write_text(cgroup_conf(installed_version(), version, options.confine))
    if options.gpus:
        made = gpus.make(folder, options.gpus, options.confine)
        (folder / "gres.conf").write_text(gres_conf(made))
    plugstack = list(options.plugstack)
    if options.keeper is not None:
        plugstack.append(plugin.install(folder, _plugin_settings(folder, options, controllers)))
    (folder / "plugstack.conf").write_text("".join(f"{line}\n" for line in plugstack))


def _plugin_settings(
    folder: Path, options: Options, controllers: Mapping[str, str]
) -> dict[str, str]:
    keeper = str(options.keeper)
    if keeper.startswith(":"):
        keeper = ",".join(f"{address}{keeper}" for address in controllers.values())
    settings = {"keeper": keeper, "key_file": f"{folder}/{_OUR_KEY}"}
    if not options.auth_slurm:
        settings["munge_socket"] = f"{folder}/munge/socket"
    if os.getuid() != 0:  # the nodes have no host names by which they could meet
        settings["local_addr"] = _HERE
    if options.qos:
        settings["qos"] = accounting.QOS
    if options.share:
        settings["share"] = "yes"
    if options.announce:
        settings["announce"] = keeper
    return settings


def _make_folders(lab: Cluster, slurm: str) -> None:
    folder = lab.folder
    folder.chmod(0o755)
    spools = [f"spool/{node}" for node in lab.node_names]
    homes = [f"home/{name}" for name in users.NAMES]
    for name in ("munge", "state", "spool", "run", "log", "home", "tmp", *spools, *homes):
        (folder / name).mkdir()
    (folder / "tmp").chmod(0o1777)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    if os.getuid() == 0:
        shutil.copy("/etc/hosts", folder)
        users.acquire(folder)
    for name in users.NAMES:
        users.give(folder / "home" / name, name)
    for name in ("state", "run", "log"):
        users.give(folder / name, slurm)


def _start(lab: Cluster, options: Options) -> None:
    if not options.auth_slurm:
        lab.start_munged()
    if options.qos:
        _start_accounting(lab)
    for host in CONTROL_HOSTS if options.backup else (None,):
        lab.start_slurmctld(on=host)
    for node in lab.node_names:
        lab.start_slurmd(node)


def _start_accounting(lab: Cluster) -> None:
    def answers() -> bool:
        with suppress(LabError):
            return bool(lab.ask("sacctmgr", "show", "qos"))
        return False

    lab.start_daemon("mariadbd", _program("mariadbd"), *accounting.database_options(lab.folder))
    wait_until((lab.folder / "run/database.sock").exists, _WITHIN_S, "mariadbd is not ready")
    lab.start_daemon("slurmdbd", _program("slurmdbd"), "-D")
    wait_until(answers, _WITHIN_S, "slurmdbd is not ready")
    me = pwd.getpwuid(os.getuid()).pw_name
    accounting.add_everybody(lab.ask, [me] if os.getuid() else users.NAMES)


def _check(options: Options) -> None:
    root = os.getuid() == 0
    needed = dict.fromkeys(_PROGRAMS, "slurmctld slurmd munge")
    needed |= dict.fromkeys(namespaces.PROGRAMS if root else (), "util-linux mount")
    needed |= dict.fromkeys(accounting.PROGRAMS if options.qos else (), "mariadb-server slurmdbd")
    needed |= dict.fromkeys(networks.PROGRAMS if options.networks else (), "iproute2")
    for name, packages in needed.items():
        _program(name, packages)
    if options.backup and not options.networks:
        raise OptionsError("a second host for slurmctld needs networks: add --networks")
    if options.networks and not root:
        raise OptionsError("nodes with networks of their own need root")
    if options.networks and options.nodes > networks.MOST_NODES:
        raise OptionsError(f"at most {networks.MOST_NODES} nodes have networks of their own")
    if options.confine and not (root and options.gpus and not options.linuxproc):
        raise OptionsError("--confine needs root, --gpus and cgroups")
    if options.confine and (why := gpus.obstacle()) is not None:
        raise LabError(f"--confine: {why}")


def _wait_for_nodes(lab: Cluster) -> None:
    def idle() -> bool:
        for name, daemon in lab.daemons.items():
            if not daemon.alive:
                raise LabError(f"{name} ended at once")
        try:
            states = lab.ask("sinfo", "-h", "-N", "-p", "main", "-o", "%t").split()
        except LabError:
            return False  # slurmctld does not answer yet
        return states.count("idle") == lab.nodes

    wait_until(idle, _WITHIN_S, "the nodes do not become idle")


def installed_version() -> tuple[int, int]:
    """Return the version of the Slurm that is installed here, as (23, 11).

    Raises:
        LabError: there is none, or it does not say its version.
    """
    text = subprocess.run([_program("slurmctld"), "-V"], capture_output=True, text=True).stdout
    match = re.search(r"(\d+)\.(\d+)", text)
    if match is None:
        raise LabError(f"slurmctld does not tell its version: {text!r}")
    return int(match[1]), int(match[2])


def _host(node: str) -> str:
    """Return the name of the daemon that keeps a node's namespaces."""
    return f"host-{node}"


def _program(name: str, packages: str = "slurmctld slurmd munge") -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise LabError(f"{name} is not installed: apt-get install {packages}")
    return path


def free_ports(count: int, promised: Container[int] = ()) -> list[int]:
    """Return ports that are free now, below the kernel's range for outgoing connections.

    None is among those ``promised`` to others, who will use them soon.
    """
    found: list[int] = []
    candidates = random.sample(range(10_000, 32_000), 20 * count)
    for port in candidates:
        if port in promised:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise LabError("not enough free ports")


def _last_words(folder: Path) -> str:
    said = [
        f"{log.name}: {line}"
        for log in sorted((folder / "log").glob("*"))
        for line in last_lines(log, 5).splitlines()
        if "error" in line or "fatal" in line
    ]
    return "\n".join(said[-20:])
