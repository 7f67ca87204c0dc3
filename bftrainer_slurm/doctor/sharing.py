"""Checks that jobs are kept apart on nodes, if the site lets trainers share nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, conf, consider, must, ok

_CHANGE_CHOICE, _FROM_THE_END = {"CR_LLN"}, "pack_serial_at_end"
_FLAT = ("topology/none", "topology/flat", "topology/default")  # before 23.11 and since
_NO_DEFAULT = ("", "0", "UNLIMITED", "(null)")  # 0 is the whole node's memory: slurm.conf(5)
_PER_GPU = re.compile(r"\bDefMemPerGPU=0*[1-9]")
_CONFINED = ("ConstrainCores", "ConstrainRAMSpace")


def check(facts: Facts) -> Iterator[Finding]:
    """Check what shared nodes need; yield nothing if trainers have whole nodes."""
    if not facts.settings.share and facts.option("share") != "yes":
        return
    gpus = "gpu" in facts.words("GresTypes")
    yield _memory_counted(facts)
    yield _default_memory(facts, gpus)
    yield _jobs_confined(facts, gpus)
    yield _choice_foreseen(facts)


def _memory_counted(facts: Facts) -> Finding:
    value = facts.value("SelectTypeParameters")
    if "CR_CORE_MEMORY" in value.upper():
        return ok("share: memory counted", value)
    why = "Elements would take cores and memory that ordinary jobs count on."
    change = conf("SelectTypeParameters", "CR_Core_Memory")
    return must("share: memory counted", value or "nothing is", why, change)


def _default_memory(facts: Facts, gpus: bool) -> Finding:
    own = facts.partition or {}
    found = [
        f"{key}={value}"
        for key in ("DefMemPerCPU", "DefMemPerNode", "JobDefaults")
        for value in dict.fromkeys((own.get(key, ""), facts.value(key)))
        if value not in _NO_DEFAULT
    ]
    if any("JobDefaults" not in one or (gpus and _PER_GPU.search(one)) for one in found):
        return ok("share: default memory", ", ".join(found))
    why = "An element without --mem takes all memory of its node, and no job fits beside it."
    return must(
        "share: default memory",
        "none",
        why,
        conf(f"DefMemPer{'GPU' if gpus else 'CPU'}", "MEGABYTES"),
    )


def _jobs_confined(facts: Facts, gpus: bool) -> Finding:
    title = "share: jobs confined"
    keys = (*(["ConstrainDevices"] if gpus else []), *_CONFINED)
    missing = [key for key in keys if facts.value(key).lower() != "yes"]
    if "task/cgroup" not in facts.words("TaskPlugin"):
        why = "A training would use its neighbours' cores and memory."
        return must(title, "without task/cgroup", why, conf("TaskPlugin", "task/cgroup"))
    if missing:
        lines = ", ".join(f"{key}=yes" for key in missing)
        why = "A training could use what its neighbours have allocated."
        return must(title, f"cgroup.conf lacks {lines}", f"{why} Write {lines} into cgroup.conf.")
    return ok(title, ", ".join(keys))


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
