"""slurmctld's job table: room for elements, large enough arrays, remembered ended jobs."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, conf, consider, must, ok, unknown

_SHORT_AGE_S = 60.0  # how seldom the controller asks a slow slurmctld
_OF_ONE = 10  # one trainer may hold a tenth of the table, unless the plugin's line says otherwise


def check(facts: Facts) -> Iterator[Finding]:
    """Look at the job table."""
    yield _max_jobs(facts)
    yield _age(facts)
    yield _arrays(facts)


def _max_jobs(facts: Facts) -> Finding:
    jobs, share = facts.number("MaxJobCount") or 0, facts.settings.job_table_share
    room, nodes = int(share * jobs), facts.nodes
    one = facts.option("max_elements") or str(jobs // _OF_ONE)
    found = f"{jobs}, of which trainers may hold {room}, and one trainer {one}"
    if room >= nodes:
        return ok("MaxJobCount", found)
    wanted = -(-nodes // share)
    why = f"Each element is a job: trainers together can use {room} of {nodes} nodes."
    change = conf("MaxJobCount", f"{wanted:.0f}")
    return consider("MaxJobCount", found, why, change)


def _age(facts: Facts) -> Finding:
    age_s = facts.seconds("MinJobAge")
    if age_s is None:
        return unknown(
            "MinJobAge", facts.value("MinJobAge") or "not shown", "scontrol does not say."
        )
    if age_s == 0:
        why = "slurmctld then never forgets a job, and its table fills with ended elements."
        return consider("MinJobAge", "0 s", why, conf("MinJobAge", "300"))
    if age_s < _SHORT_AGE_S:
        why = (
            "The controller asks Slurm how elements ended, and brings failed ones back. It "
            "has to look before slurmctld forgets them."
        )
        return must("MinJobAge", f"{age_s:g} s", why, conf("MinJobAge", "300"))
    return ok("MinJobAge", f"{age_s:g} s")


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
