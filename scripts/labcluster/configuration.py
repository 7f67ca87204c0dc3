"""The configuration files of a private cluster, as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CORES_PER_GPU, _MEMORY_MB_PER_CORE = 2, 500


def _said(default: Any, words: str) -> Any:
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True)
class Options:
    """The options of ``lab up``; the texts are its help."""

    nodes: int = field(metadata={"help": "how many, n1 to nN"})
    kill_wait: int = _said(30, "Slurm's KillWait, in seconds")
    bf_interval: int = _said(5, "seconds between passes of backfill")
    conf: tuple[str, ...] = _said((), "a line of slurm.conf: KEY=VALUE; may be given again")
    plugstack: tuple[str, ...] = _said((), "a line of plugstack.conf; may be given again")
    keeper: str | None = _said(None, "[HOST]:PORT: with our plugin, told of this keeper")
    qos: bool = _said(False, "accounting, and preemption by QOS")
    networks: bool = _said(False, "each node in a network of its own")
    auth_slurm: bool = _said(False, "no MUNGE (23.11; one such cluster a host)")
    linuxproc: bool = _said(False, "without cgroups, where they may be")
    configless: bool = _said(False, "slurmds ask for their slurm.conf")
    gpus: int = _said(0, "how many a node, with two cores and 1000 MB each; jobs share nodes")
    confine: bool = _said(False, "GPUs are devices, and each job can open its own alone")
    share: bool = _said(False, "with our plugin: trainers that ask for GPUs have parts")
    announce: bool = _said(False, "with our plugin: submissions are announced to the keeper")
    backup: bool = _said(False, "slurmctld on c1, its backup on c2")


def slurm_conf(
    folder: Path,
    options: Options,
    controllers: Mapping[str, str],
    user: str,
    slurmd_user: str,
    ports: Sequence[int],
    host: str,
    addresses: Sequence[str],
    cgroups: bool,
) -> str:
    """Return slurm.conf. ``ports`` has the controllers' and each node's, ``addresses`` the nodes'.

    ``controllers`` are the addresses of slurmctld's hosts by name, ``host`` is the nodes' host.
    Lines of ``options.conf`` take the place of lines with the same key, or are added.
    """
    first, *others = (f"{name}({address})" for name, address in controllers.items())
    lines = {
        "ClusterName": "lab",
        "SlurmctldHost": first,
        "SlurmUser": user,
        "SlurmdUser": slurmd_user,
        "SlurmctldPort": str(ports[0]),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/%n.log",
        "PlugStackConfig": f"{folder}/plugstack.conf",
        "ProctrackType": f"proctrack/{'cgroup' if cgroups else 'linuxproc'}",
        "TaskPlugin": f"task/{'cgroup' if cgroups else 'none'}",
        "JobAcctGatherType": "jobacct_gather/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "SchedulerType": "sched/backfill",
        # Slurm may let a batch job wait 3 s before it looks at it: too coarse to measure with.
        "SchedulerParameters": f"bf_interval={options.bf_interval},batch_sched_delay=0",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "KillWait": str(options.kill_wait),
        "MinJobAge": "300",
        "SlurmdTimeout": "30",
        "ReturnToService": "2",
        "SlurmdParameters": "config_overrides",  # the nodes are smaller than they say
        "PropagatePrioProcess": "1",  # jobs do not inherit the daemons' priority
    }
    if options.auth_slurm:  # its key is in slurm.key, beside slurm.conf
        lines |= {"AuthType": "auth/slurm", "CredType": "auth/slurm"}
        del lines["AuthInfo"]
    cpus = max(2, _CORES_PER_GPU * options.gpus)
    if options.gpus:
        lines |= _sharing(options.gpus, cpus)
    if options.backup:
        lines["SlurmctldTimeout"] = "20"
        lines["SlurmctldPidFile"] = "/run/slurm/slurmctld.pid"  # each host's own
    if options.configless:
        lines["SlurmctldParameters"] = "enable_configless"
        del lines["PlugStackConfig"]  # slurmctld sends slurmds the one beside slurm.conf
    lines |= dict(line.split("=", 1) for line in options.conf)
    text = [f"{key}={value}" for key, value in lines.items()]
    text += [f"SlurmctldHost={other}" for other in others]
    text += [
        f"NodeName=n{number} NodeHostname={host} NodeAddr={address} Port={port} CPUs={cpus}"
        for number, (port, address) in enumerate(zip(ports[1:], addresses, strict=True), start=1)
    ]
    text += [
        "PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF "
        "DefaultTime=10 MaxTime=INFINITE State=UP",
        "PartitionName=bftrainer Nodes=ALL PriorityTier=0 PreemptMode=REQUEUE GraceTime=0 "
        "DefaultTime=1440 MaxTime=INFINITE MaxNodes=1 State=UP",
    ]
    return "\n".join(text) + "\n"


def _sharing(gpus: int, cpus: int) -> dict[str, str]:
    """Return the lines by which jobs share nodes of so many GPUs and cores."""
    return {
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": f"{_MEMORY_MB_PER_CORE}",
        "NodeName": f"DEFAULT Gres=gpu:a100:{gpus} RealMemory={_MEMORY_MB_PER_CORE * cpus}",
        "GresTypes": "gpu",
        "DefCpuPerGPU": f"{_CORES_PER_GPU}",
        "DefMemPerGPU": f"{_CORES_PER_GPU * _MEMORY_MB_PER_CORE}",
    }


def gres_conf(gpus: Sequence[Path]) -> str:
    """Return gres.conf for nodes that all have these files as their GPUs."""
    return "AutoDetect=off\n" + "".join(f"Name=gpu Type=a100 File={gpu}\n" for gpu in gpus)


def cgroup_conf(slurm: tuple[int, int], version: int | None, confine: bool) -> str:
    """Return cgroup.conf for this version of cgroups; None: without cgroups.

    ``confine`` keeps jobs from the devices of others. From 23.11 on slurmd works without cgroups
    only if it is told so.
    """
    if version is None:
        return "CgroupPlugin=disabled\n" if slurm >= (23, 11) else ""
    systemd = "IgnoreSystemd=yes\n" if version == 2 else ""
    devices = "ConstrainDevices=yes\n" if confine else ""
    return f"CgroupPlugin=cgroup/v{version}\n{systemd}{devices}"
