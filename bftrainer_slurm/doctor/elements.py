"""Checks what concerns elements on compute nodes: prolog, epilog, how Slurm finds processes."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, conf, consider, must, ok, unknown

_PROLOGS = ("Prolog", "PrologSlurmctld", "EpilogSlurmctld")


def check(facts: Facts) -> Iterator[Finding]:
    """Check what happens on a node before, in and after an element."""
    yield _epilog(facts)
    yield _prologs(facts)
    yield _proctrack(facts)
    yield _slurmd_user(facts)
    yield _return_to_service(facts)
    yield _health_check(facts)
    if "contain_spank" in facts.words("SlurmdParameters"):
        left = [word for word in facts.words("SlurmdParameters") if word != "contain_spank"]
        why = (
            "A step's hooks then run in a short-lived process. When it ends, the guard thinks that "
            "slurmstepd has ended, and ends the element (read in the manual, not tried)."
        )
        change = conf("SlurmdParameters", ",".join(left))
        yield must("SlurmdParameters", "contain_spank", why, change)


def _epilog(facts: Facts) -> Finding:
    epilog = facts.value("Epilog")
    if not epilog:
        why = (
            "With an epilog slurmd tells slurmctld at once that an element has ended, and the main "
            "scheduler starts the waiting job. Without one this can take 3 s (22.05.8)."
        )
        change = conf("Epilog", "/bin/true")
        return consider("Epilog", "none", why, change)
    why = (
        "An ordinary job gets a trainer's node only after the epilog, so the epilog "
        f"should take less than a second. On a node, as root: time {epilog}"
    )
    return unknown("Epilog", f"{epilog}; how long it takes is not known", why)


def _prologs(facts: Facts) -> Finding:
    there = [f"{key}={facts.value(key)}" for key in _PROLOGS if facts.value(key)]
    if not there:
        return ok("Prolog", "none, and no PrologSlurmctld or EpilogSlurmctld")
    why = "They run for each element, at each start or end; keep them short."
    return unknown("Prolog", ", ".join(there), why)


def _proctrack(facts: Facts) -> Finding:
    kind = facts.value("ProctrackType")
    fine = kind in ("proctrack/cgroup", "proctrack/linuxproc")
    why = (
        "Cgroups find the processes that an element leaves behind. We have tested proctrack/cgroup "
        "and proctrack/linuxproc (with the plugin's own cgroups)."
    )
    change = conf("ProctrackType", "proctrack/cgroup")
    return must("ProctrackType", kind or "not shown", why, change, unless=fine)


def _slurmd_user(facts: Facts) -> Finding:
    user = facts.value("SlurmdUser").partition("(")[0]
    why = "Without root the guard ends only descendants of slurmstepd; a user can escape it."
    found, change = user or "not shown", conf("SlurmdUser", "root")
    return consider("SlurmdUser", found, why, change, unless=user == "root")


def _health_check(facts: Facts) -> Finding:
    title, program = "HealthCheckProgram", facts.value("HealthCheckProgram")
    if not program:
        return ok(title, "none")
    states = facts.value("HealthCheckNodeState") or "ANY"
    why = (
        "A node on which trainers run is not idle, so it is not checked for as long as they have "
        "it, and nobody drains it."
    )
    words = set(states.split(","))
    fine = "IDLE" not in words or not words <= {"IDLE", "CYCLE"}
    found, change = f"{program}, HealthCheckNodeState={states}", conf("HealthCheckNodeState", "ANY")
    return consider(title, found, why, change, unless=fine)


def _return_to_service(facts: Facts) -> Finding:
    value = facts.value("ReturnToService")
    why = (
        "A node that did not answer for SlurmdTimeout stays DOWN until an admin resumes it, also "
        "for trainers. With 1 it returns once it answers."
    )
    change = conf("ReturnToService", "1")
    return consider("ReturnToService", value or "not shown", why, change, unless=value != "0")
