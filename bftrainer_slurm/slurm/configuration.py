"""What trainers need of slurmctld's configuration, and its schedulers' last passes.

Every function that takes a runner makes requests of its own.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping

from bftrainer_slurm.model import PRIVATE, BackfillPass, Configuration, Part
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from bftrainer_slurm.slurm.nodelists import expand
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.submission.directives import minutes_of

_BACKFILL_S = 30.0  # Slurm's own bf_interval
_BACKFILL_DEPTH = 500  # and its own bf_max_job_test
_PASS = re.compile(r"^\s*Last cycle when: .*\((\d+)\)$", re.MULTILINE)
_TRIED = re.compile(r"^\s*Last depth cycle \(try sched\): (\d+)$", re.MULTILINE)
_LOOKED_AT = re.compile(r"^\s*Last depth cycle: (\d+)$", re.MULTILINE)
_QUEUE = re.compile(r"^\s*Last queue length: (\d+)$", re.MULTILINE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_PER_GPU = re.compile(r"\b(Def(?:Cpu|Mem)PerGPU)=(\d+)")
_ACTIVE = "in the middle of backfilling"
_NODE = re.compile(r"NodeName=(\S+) ")
_LAST_BUSY = re.compile(r" LastBusyTime=(\d+)\b")
_SWITCH = re.compile(r"(?:SwitchName=(?=\S+ Level=0 )|BlockName=)(\S+) .*?\bNodes=(\S+)")
_SUSPEND_TIME = re.compile(r" SuspendTime=(\w+)")  # from 26.05 on


def configuration(runner: SlurmRunner, partition: str) -> Configuration:
    """Return the settings of slurm.conf.

    Raises:
        GatewayError: Slurm did not answer, its answer was wrong, or it has no such partition.
    """
    values = values_of(runner)
    partitions = partitions_of(runner)
    if partition not in partitions:
        raise GatewayError(f"scontrol show partition: no partition {partition}")
    nodes = power_saving_nodes(runner, values)
    suspend_s = suspend_times_s(values, partitions, partition, nodes)
    return Configuration(
        minutes_of(partitions[partition]["MaxTime"]),
        backfill_s(values),
        partitions_behind(
            partitions, partition, by_tier="partition_prio" in values.get("PreemptType", "")
        ),
        grace_s=int(partitions[partition].get("GraceTime", "0")),
        private=_private_data(values.get("PrivateData", "").split(",")),
        preempts=preempts(values, partitions[partition]),
        cancels="CANCEL" in _modes(partitions[partition]),
        exempt_s=_exempt_s(runner, values, partitions[partition]),
        counts_memory="MEMORY" in values.get("SelectTypeParameters", "").upper(),
        per_gpu=per_gpu(values, partitions),
        suspend_s=suspend_s,
        busy_s={
            node: float(busy[1])
            for node in suspend_s
            if (busy := _LAST_BUSY.search(nodes.get(node, ""))) is not None
        },
        backfill_depth=backfill_depth(values),
        backfill_of_user=_scheduler_number(values, "bf_max_job_user") or 0,
        switch_of=switches(runner, values),
    )


def switches(runner: SlurmRunner, values: Mapping[str, str]) -> dict[str, str]:
    """Return the lowest switch, or the block, that each node is under; empty without a topology.

    ``values`` are the lines of ``scontrol show config``. A node under several, in overlapping
    blocks, has the last one.

    Raises:
        GatewayError: Slurm did not answer.
    """
    if values.get("TopologyPlugin") not in ("topology/tree", "topology/block"):
        return {}
    text = runner.read("scontrol", "--oneliner", "show", "topology")
    found = (match.groups() for line in text.splitlines() if (match := _SWITCH.match(line)))
    return {node: name for name, nodes in found for node in expand(nodes)}


def saves_power(values: Mapping[str, str]) -> bool:
    """Return whether Slurm can switch nodes off and on; see the power saving guide of Slurm."""
    return all(values.get(one, "(null)") != "(null)" for one in ("SuspendProgram", "ResumeProgram"))


def suspend_times_s(
    values: Mapping[str, str],
    partitions: Mapping[str, Mapping[str, str]],
    partition: str,
    nodes: Mapping[str, str],
) -> dict[str, float]:
    """Return after how many idle seconds Slurm switches each node of a partition off.

    Nodes that it leaves on are left out. A node's longest time of all its partitions counts, and
    the general one only if none of them has a time (``power_save_set_timeouts``, 22.05 to 26.05).
    ``nodes`` is what scontrol shows of each, from 26.05 on with its time. ``SuspendExcNodes`` with
    a number (``n[1-8]:2``) names no certain nodes, and ``SuspendExcStates`` pass.
    """
    if not saves_power(values):
        return {}
    found: dict[str, float] = {}
    for one in partitions.values():
        if (text := one.get("SuspendTime", "GLOBAL")) != "GLOBAL":
            for node in expand(one.get("Nodes")):
                found[node] = max(found.get(node, 0.0), _suspend_time_s(text))
    for node, shown in nodes.items():
        if (own := _SUSPEND_TIME.search(shown)) is not None:
            found[node] = _suspend_time_s(own[1])
    exempt = values.get("SuspendExcNodes", "")
    left_on = set(expand("" if ":" in exempt else exempt))
    for name in values.get("SuspendExcParts", "").split(","):
        left_on.update(expand(partitions.get(name, {}).get("Nodes")))
    general_s = seconds_of(values.get("SuspendTime", ""))
    every = expand(partitions[partition].get("Nodes"))
    times_s = ((node, found.get(node, general_s)) for node in every if node not in left_on)
    return {node: one for node, one in times_s if one is not None and not math.isinf(one)}


def _suspend_time_s(text: str) -> float:
    return float(text) if text.isdigit() else math.inf


def power_saving_nodes(runner: SlurmRunner, values: Mapping[str, str]) -> dict[str, str]:
    """Return what scontrol shows of each node, if Slurm saves power; only admins write that.

    Raises:
        GatewayError: Slurm did not answer.
    """
    if not saves_power(values):
        return {}
    text = runner.read("scontrol", "--all", "--oneliner", "show", "node")
    return {match[1]: line for line in text.splitlines() if (match := _NODE.match(line))}


def preempts(values: Mapping[str, str], partition: Mapping[str, str]) -> bool:
    """Return whether Slurm preempts jobs in this partition, as far as the configuration tells.

    ``values`` are the lines of ``scontrol show config``; see ``PreemptType`` in slurm.conf(5).
    Where Slurm preempts by QOS, the QOS has the mode.
    """
    by_qos = values.get("PreemptType") == "preempt/qos"
    make_way = bool(_modes(partition) & {"REQUEUE", "CANCEL"})
    return by_qos or (make_way and values.get("PreemptType") == "preempt/partition_prio")


def per_gpu(
    values: Mapping[str, str], partitions: Mapping[str, Mapping[str, str]]
) -> dict[str, Part]:
    """Return what jobs get by default with each GPU, by partition; see ``JobDefaults``.

    Each default of a partition comes before that of the cluster (``_set_gpu_defaults`` in Slurm's
    cons_tres, all versions).
    """
    found = {}
    for name, one in partitions.items():
        said = ",".join(of.get("JobDefaults", "") for of in (values, one))
        defaults = {key: int(number) for key, number in _PER_GPU.findall(said)}
        if any(defaults.values()):
            found[name] = Part(
                1, defaults.get("DefCpuPerGPU", 0), float(defaults.get("DefMemPerGPU", 0))
            )
    return found


def _modes(partition: Mapping[str, str]) -> set[str]:
    return set(partition.get("PreemptMode", "").split(","))


def _exempt_s(
    runner: SlurmRunner, values: Mapping[str, str], partition: Mapping[str, str]
) -> float:
    """Return for how long Slurm preempts no job of a partition after its start.

    See ``PreemptExemptTime`` in slurm.conf(5). The QOS of the partition wins, if it has one; the
    QOS of a job is ignored.
    """
    qos, text = partition.get("QoS", "N/A"), ""
    if qos != "N/A":
        words = ("show", "qos", qos, "format=preemptexempttime")
        with contextlib.suppress(GatewayError):
            text = runner.read("sacctmgr", "--noheader", "--parsable2", *words).strip()
    return seconds_of(text or values.get("PreemptExemptTime", "")) or 0.0


def seconds_of(text: str) -> float | None:
    """Read a time as Slurm shows it: ``30 sec``, ``00:10:00``, ``1-00:00:00``; else None."""
    number, _, unit = text.partition(" ")
    if number.isdigit() and unit in ("", "sec"):
        return float(number)
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _private_data(words: list[str]) -> frozenset[str]:
    return PRIVATE if "all" in words else PRIVATE.intersection(words)


def backfill_s(values: Mapping[str, str]) -> float | None:
    """Return the time between two backfill passes, None if Slurm makes none.

    ``values`` are the lines of ``scontrol show config``; see ``bf_interval`` in slurm.conf(5).
    """
    if values.get("SchedulerType") != "sched/backfill":
        return None
    told = _scheduler_number(values, "bf_interval")
    interval_s = _BACKFILL_S if told is None else float(told)
    return interval_s if interval_s > 0 else None


def backfill_depth(values: Mapping[str, str]) -> int:
    """Return how many jobs a backfill pass tries at most; see ``bf_max_job_test``."""
    return _scheduler_number(values, "bf_max_job_test") or _BACKFILL_DEPTH


def _scheduler_number(values: Mapping[str, str], option: str) -> int | None:
    match = re.search(rf"(?:^|,){option}=(-?\d+)", values.get("SchedulerParameters", ""))
    return None if match is None else int(match[1])


def last_pass(runner: SlurmRunner) -> BackfillPass | None:
    """Return the last pass of the backfill scheduler; None if there was none or sdiag is forbidden.

    Slurm does not count a pass with nothing in the queue.

    Raises:
        SlurmUnavailableError: slurmctld does not answer.
    """
    try:
        text = runner.read("sdiag")
    except SlurmUnavailableError:
        raise
    except GatewayError:
        return None
    return pass_in(text)


def pass_in(text: str) -> BackfillPass | None:
    """Read the last pass in what sdiag prints; None if there was none."""
    match = _PASS.search(text)
    if match is None:
        return None
    found = [one.search(text, match.end()) for one in (_TRIED, _LOOKED_AT, _QUEUE)]
    tried, looked_at, queue = (0 if one is None else int(one[1]) for one in found)
    return BackfillPass(float(match[1]), _ACTIVE in text, tried, max(0, queue - looked_at))


def values_of(runner: SlurmRunner) -> dict[str, str]:
    """Return the lines of ``scontrol show config``, by their names.

    Raises:
        GatewayError: Slurm did not answer, or its answer was wrong.
    """
    # scontrol exits with 1 if slurmctld answers, but then limits the pings (rl_enable).
    return values_in(runner.read("scontrol", "show", "config", accepted_status=1))


def values_in(text: str) -> dict[str, str]:
    """Read what ``scontrol show config`` prints; the last numbered setting (``Epilog[0]``) wins.

    Raises:
        GatewayError: the text is something else.
    """
    lines = re.findall(r"^(\w+)(?:\[\d+\])?\s*= (.*?)\s*$", text, re.MULTILINE)
    values = dict(lines)
    if not values.get("MaxJobCount", "").isdigit():
        raise GatewayError("scontrol show config: no MaxJobCount in it")
    return values


def partitions_of(runner: SlurmRunner) -> dict[str, dict[str, str]]:
    """Return the settings of all partitions, by name.

    Raises:
        GatewayError: Slurm did not answer.
    """
    return partitions_in(runner.read("scontrol", "--all", "--oneliner", "show", "partition"))


def partitions_in(text: str) -> dict[str, dict[str, str]]:
    """Read what ``scontrol --oneliner show partition`` prints. Only admins write it."""
    read = (dict(re.findall(r"(\w+)=(\S+)", line)) for line in text.splitlines())
    return {one["PartitionName"]: one for one in read if {"PartitionName", "MaxTime"} <= one.keys()}


def partitions_behind(
    partitions: Mapping[str, Mapping[str, str]], trainers: str, *, by_tier: bool
) -> tuple[str, ...]:
    """Return the other partitions on trainers' nodes whose jobs do not go before trainers.

    Slurm takes its queue by tier. With ``by_tier`` it also preempts only jobs of a lower tier.
    """
    nodes = {name: set(expand(one.get("Nodes", ""))) for name, one in partitions.items()}
    highest = tier(partitions[trainers]) if by_tier else tier(partitions[trainers]) - 1
    return tuple(
        name
        for name in sorted(partitions)
        if name != trainers and tier(partitions[name]) <= highest and nodes[name] & nodes[trainers]
    )


def tier(partition: Mapping[str, str]) -> int:
    """Return a partition's PriorityTier."""
    return int(partition.get("PriorityTier", "1"))


def slurm_user() -> str:
    """Return the name of SlurmUser, who runs a site's controller.

    Costs one RPC, and a ping for each slurmctld.

    Raises:
        GatewayError: slurmctld does not answer, or does not name SlurmUser.
    """
    name = values_of(SlurmRunner()).get("SlurmUser", "").partition("(")[0].strip()
    if not name:
        raise GatewayError("'scontrol show config' does not name SlurmUser")
    return name
