"""Checks what the trainers' QOS allows them to have; that it has a limit is in ``job_table``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, consider, shell

# As sacctmgr names them in a table, and in a command. PU: of one user.
OF_JOBS = {
    "GrpSubmit": "grpsubmitjobs",
    "MaxSubmitPU": "maxsubmitjobspu",
    "GrpJobs": "grpjobs",
    "MaxJobsPU": "maxjobspu",
}
OF_RESOURCES = {"GrpTRES": "grptres", "MaxTRESPU": "maxtrespu"}
_NODES = re.compile(r"(?:^|,)node=(\d+)")
_WHY = (
    "Each element is a job of one node, and a trainer of up to N nodes has N + 1 elements from its "
    "submission on. With this limit trainers{} cannot use the {} nodes of their partition."
)


def check(facts: Facts) -> Iterator[Finding]:
    """Check each limit of the QOS on jobs and nodes against the nodes of the partition."""
    name = facts.option("qos") or (facts.partition or {}).get("QoS", "N/A")
    row = (facts.qos or {}).get(name)
    if row is None or not facts.nodes:
        return
    found = [(key, row.get(key, ""), command) for key, command in OF_JOBS.items()]
    limits = [(key, int(value), command, "") for key, value, command in found if value.isdigit()]
    for key, command in OF_RESOURCES.items():
        if (match := _NODES.search(row.get(key, ""))) is not None:
            limits.append((key, int(match[1]), command, "node="))
    for key, most, command, unit in limits:
        enough = facts.nodes + ("Submit" in key)
        why = _WHY.format(" of one user" if key.endswith("PU") else "", facts.nodes)
        change = shell(f"sacctmgr modify qos {name} set {command}={unit}{enough}")
        yield consider(f"{name}'s {key}", f"{unit}{most}", why, change, unless=most >= enough)
