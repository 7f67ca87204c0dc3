"""Checks that jobs are kept apart on nodes, if the site lets trainers share nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import (
    CGROUP_CONF,
    Change,
    Finding,
    conf,
    consider,
    must,
    ok,
    ours,
    setting,
)

_CONS_TRES, _COUNTED = "select/cons_tres", "CR_Core_Memory"
_RESOURCES = re.compile(r"CR_(CPU|Core|Socket|Memory)(_Memory)?", re.IGNORECASE)
_CHANGE_CHOICE, _FROM_THE_END = {"CR_LLN"}, "pack_serial_at_end"
_FLAT = ("topology/none", "topology/flat", "topology/default")  # before 23.11 and since
_NO_DEFAULT = ("", "0", "UNLIMITED", "(null)")  # 0 is the whole node's memory: slurm.conf(5)
_PER_GPU = re.compile(r"\bDefMemPerGPU=0*[1-9]")
_CONFINED = ("ConstrainDevices", "ConstrainCores", "ConstrainRAMSpace")


def check(facts: Facts) -> Iterator[Finding]:
    """Check what shared nodes need; yield nothing if trainers have whole nodes."""
    submitted = facts.option("share") == "yes"
    if not facts.settings.share and not submitted:
        return
    if facts.plugin.line is not None:
        yield _both_told(facts, submitted)
    yield _partition_shares(facts)
    yield _memory_counted(facts)
    yield _default_memory(facts)
    yield _jobs_confined(facts)
    yield _choice_foreseen(facts)


def _both_told(facts: Facts, submitted: bool) -> Finding:
    title, told = "share: told to both", facts.settings.share
    if not submitted:
        why = "Only this line makes sbatch submit trainers for parts of nodes."
        change = facts.in_line("share", "yes")
        return must(title, "the plugin's line lacks share=yes", why, change)
    why = "The controller takes trainers of parts of nodes for trainers of whole nodes."
    change = ours("share", "true")
    return must(title, "share=yes", why, change, unless=told)


def _partition_shares(facts: Facts) -> Finding:
    value = (facts.partition or {}).get("OverSubscribe", "NO")
    why = "Slurm gives each element its whole node."
    change, shares = facts.in_partition("OverSubscribe", "NO"), value != "EXCLUSIVE"
    return must("share: OverSubscribe", value, why, change, unless=shares)


def _memory_counted(facts: Facts) -> Finding:
    title = "share: memory counted"
    plugin, words = facts.value("SelectType"), facts.words("SelectTypeParameters")
    why = "Elements would take cores and memory that ordinary jobs count on."
    changes = []
    if plugin != _CONS_TRES:
        changes.append(conf("SelectType", _CONS_TRES))
        why += " With another SelectType slurmctld forgets all jobs: slurm.conf(5)."
    if _COUNTED.upper() not in map(str.upper, words):
        others = [one for one in words if not _RESOURCES.fullmatch(one)]
        changes.append(conf("SelectTypeParameters", ",".join((_COUNTED, *others))))
    why += " Each NodeName needs RealMemory (slurmd -C tells it), else it counts as 1 MB. Then"
    why += " restart slurmctld."
    found = ", ".join((plugin, *words)) if plugin != _CONS_TRES else ", ".join(words)
    return must(title, found or "nothing is", why, *changes, unless=not changes)


def _default_memory(facts: Facts) -> Finding:
    own = facts.partition or {}
    found = [
        f"{key}={value}"
        for key in ("DefMemPerCPU", "DefMemPerNode", "JobDefaults")
        for value in dict.fromkeys((own.get(key, ""), facts.value(key)))
        if value not in _NO_DEFAULT
    ]
    if any("JobDefaults" not in one or _PER_GPU.search(one) for one in found):
        return ok("share: default memory", ", ".join(found))
    why = "An element without --mem takes all memory of its node, and no job fits beside it."
    return must("share: default memory", "none", why, conf("DefMemPerGPU", "MEGABYTES"))


def _jobs_confined(facts: Facts) -> Finding:
    missing = [key for key in _CONFINED if facts.value(key).lower() != "yes"]
    changes = [Change(CGROUP_CONF, setting(key, "yes")) for key in missing]
    if "task/cgroup" not in (plugins := facts.words("TaskPlugin")):
        others = [one for one in plugins if one != "task/none"]
        changes.insert(0, conf("TaskPlugin", ",".join((*others, "task/cgroup"))))
        missing.insert(0, "task/cgroup")
    found = f"without {', '.join(missing)}" if missing else ", ".join(_CONFINED)
    why = "A training could use what its neighbours have allocated. Then restart slurmd."
    return must("share: jobs confined", found, why, *changes, unless=not missing)


def _choice_foreseen(facts: Facts) -> Finding:
    """Check for settings with which jobs get other nodes than trainers leave for them."""
    title = "share: choice of nodes"
    others = [one for one in facts.words("SelectTypeParameters") if one.upper() in _CHANGE_CHOICE]
    others += [] if facts.scheduler(_FROM_THE_END) is None else [_FROM_THE_END]
    topology = facts.value("TopologyPlugin")
    others += [topology] if topology not in ("", *_FLAT) else []
    if not others:
        return ok(title, "by default")
    why = (
        "Trainers leave the nodes that cons_tres chooses by default. With this setting jobs may "
        "get others: some then preempt elements, and start a pass or some seconds later."
    )
    return consider(title, ", ".join(others), why)
