"""Checks slurmctld's job table: its size and limits, arrays, how long it keeps ended jobs.

Each element is a job from its submission on. When the table is full, nobody can submit a job.
"""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import (
    Change,
    Finding,
    conf,
    consider,
    must,
    ok,
    shell,
    unknown,
)

_SHORT_AGE_S = 60.0  # how rarely the controller may ask a slow slurmctld
_SHARE = 4  # all trainers together get a fourth of the table
_ONE_SHARE = 10  # one trainer may hold a tenth, unless the plugin's line has max_elements


def check(facts: Facts) -> Iterator[Finding]:
    """Check the job table."""
    yield _max_jobs(facts)
    if "slurmdbd" in facts.value("AccountingStorageType"):
        yield _limit(facts)
    yield _min_job_age(facts)
    yield _arrays(facts)


def _max_jobs(facts: Facts) -> Finding:
    jobs, nodes = facts.number("MaxJobCount") or 0, facts.nodes
    one = facts.option("max_elements") or str(jobs // _ONE_SHARE)
    found = f"{jobs}, of which one trainer may hold {one}"
    why = f"Each element is a job: those of {nodes} nodes leave little room for other jobs."
    change, fine = conf("MaxJobCount", str(nodes * _SHARE)), jobs >= nodes * _SHARE
    return consider("MaxJobCount", found, why, change, unless=fine)


def _limit(facts: Facts) -> Finding:
    """Check that a QOS limits the jobs of all trainers together."""
    title, most = "GrpSubmitJobs", max(facts.nodes, (facts.number("MaxJobCount") or 0) // _SHARE)
    why = "Trainers' elements can fill slurmctld's job table; then nobody can submit a job."
    name = facts.option("qos") or (facts.partition or {}).get("QoS", "N/A")
    if name == "N/A":
        new = shell(f"sacctmgr add qos bftrainer set grpsubmitjobs={most}")
        changes = [new, facts.in_partition("QOS", "bftrainer"), *_enforcing_change(facts)]
        return consider(title, "trainers' partition has no QOS", why, *changes)
    if facts.qos is None or name not in facts.qos:
        how = f"Compare: sacctmgr show qos {name} format=name,grpsubmitjobs"
        return unknown(title, f"QOS {name} cannot be read", how)
    changes = list(_enforcing_change(facts))
    if not (limit := facts.qos[name].get("GrpSubmit", "")):
        changes.insert(0, shell(f"sacctmgr modify qos {name} set grpsubmitjobs={most}"))
    found = f"{name} has {limit or 'none'}"
    return consider(title, found, why, *changes, unless=not changes)


def _enforcing_change(facts: Facts) -> Iterator[Change]:
    """Yield the change that makes slurmctld enforce limits, if it does not."""
    words = [one for one in facts.words("AccountingStorageEnforce") if one != "none"]
    if not {"limits", "safe", "all"} & set(words):
        yield conf("AccountingStorageEnforce", ",".join([*words, "limits"]))


def _min_job_age(facts: Facts) -> Finding:
    age_s = facts.seconds("MinJobAge")
    if age_s is None:
        value = facts.value("MinJobAge") or "not shown"
        return unknown("MinJobAge", value, "scontrol does not say.")
    change, found = conf("MinJobAge", "300"), f"{age_s:g} s"
    if age_s == 0:
        why = "slurmctld then never forgets a job, and its table fills with ended elements."
        return consider("MinJobAge", found, why, change)
    why = (
        "The controller asks Slurm how elements ended, and requeues failed ones. It must ask "
        "before slurmctld forgets them."
    )
    return must("MinJobAge", found, why, change, unless=age_s >= _SHORT_AGE_S)


def _arrays(facts: Facts) -> Finding:
    most = facts.number("MaxArraySize")
    if most is None:
        return unknown("MaxArraySize", "not shown", "scontrol does not say.")
    change = conf("MaxArraySize", str(max(1001, facts.nodes + 1)))
    if most < 2:
        return must("MaxArraySize", str(most), "A trainer is a job array.", change)
    if most - 1 < facts.nodes:
        why = f"A trainer can have {most - 1} elements at most, and there are {facts.nodes} nodes."
        return consider("MaxArraySize", str(most), why, change)
    return ok("MaxArraySize", f"{most}: a trainer may have {most - 1} elements")
