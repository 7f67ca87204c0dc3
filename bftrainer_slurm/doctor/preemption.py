"""Checks how Slurm takes nodes back: by tier or QOS, by requeueing, at once after a start."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, conf, consider, must, ok, shell, unknown
from bftrainer_slurm.slurm.configuration import seconds_of

_LONG_WAIT_S = 60.0
_EXEMPT = (
    "Slurm cannot preempt an element for this time after its start, and ordinary jobs would wait. "
    "So the controller starts no element."
)
_MAX_GRACE_S = 30.0  # the plugin's default of max_grace


def check(facts: Facts) -> Iterator[Finding]:
    """Check preemption."""
    kind = facts.value("PreemptType")
    fine = kind in ("preempt/partition_prio", "preempt/qos")
    change = conf("PreemptType", "preempt/partition_prio")
    why = "Without it an ordinary job waits until a trainer ends. Restart slurmctld after a change."
    yield must("PreemptType", kind or "none", why, change, unless=fine)
    mode, change = facts.value("PreemptMode") or "OFF", conf("PreemptMode", "REQUEUE")
    why = "It is OFF for the cluster, and no partition can undo that."
    yield must("PreemptMode", mode, why, change, unless=mode != "OFF")
    if facts.by_qos:
        yield _qos(facts)
    yield _exempt(facts)
    yield _kill_wait(facts)


def _qos(facts: Facts) -> Finding:
    name, title = facts.option("qos"), "trainers' QOS"
    if not name:
        why = "A site that preempts by QOS needs a QOS for trainers, which the others preempt."
        return must(title, "none in the plugin's line", why, facts.in_line("qos", "NAME"))
    if facts.qos is None:
        why = "Compare: sacctmgr show qos format=name,preempt,preemptmode"
        return unknown(title, f"{name}; sacctmgr does not answer", why)
    if name not in facts.qos:
        command = f"sacctmgr add qos {name} preemptmode=requeue"
        why = "The plugin submits trainers under this QOS."
        return must(title, f"there is no QOS {name}", why, shell(command))
    above = [one for one, row in facts.qos.items() if name in row.get("Preempt", "").split(",")]
    missing = sorted(facts.qos.keys() - {name} - set(above))
    mode = facts.qos[name].get("PreemptMode", "").lower()
    if missing:
        changes = [shell(f"sacctmgr modify qos {one} set preempt+={name}") for one in missing]
        why = "Jobs of these QOS do not preempt trainers."
        return must(title, f"{name} is not preempted by {', '.join(missing)}", why, *changes)
    if mode in ("", "cluster"):
        mode = facts.value("PreemptMode").lower()
    if "requeue" not in mode.split(","):
        command = f"sacctmgr modify qos {name} set preemptmode=requeue"
        why = "A preempted element must return to the queue."
        return must(title, f"{name} has PreemptMode={mode.upper()}", why, shell(command))
    exempt = facts.qos[name].get("PreemptExemptTime", "")
    if seconds_of(exempt):
        command = f"sacctmgr modify qos {name} set preemptexempttime=0"
        return must(title, f"{name} has PreemptExemptTime={exempt}", _EXEMPT, shell(command))
    return ok(title, f"{name}, preempted by {', '.join(above)}")


def _exempt(facts: Facts) -> Finding:
    value = facts.value("PreemptExemptTime")
    if not value or value == "-00:00:01" or facts.seconds("PreemptExemptTime") == 0:
        return ok("PreemptExemptTime", "0 s")
    return must("PreemptExemptTime", value, _EXEMPT, conf("PreemptExemptTime", "0"))


def _kill_wait(facts: Facts) -> Finding:
    wait_s = facts.seconds("KillWait")
    if wait_s is None:
        return unknown("KillWait", facts.value("KillWait") or "not shown", "scontrol does not say.")
    value = facts.option("max_grace")
    grace_s = float(value) if value.replace(".", "", 1).isdigit() else _MAX_GRACE_S
    if wait_s < grace_s:
        why = (
            f"Users may ask for a grace of {grace_s:g} s, but Slurm kills after KillWait. Lower "
            "max_grace, or raise KillWait."
        )
        return consider("KillWait", f"{wait_s:g} s", why, facts.in_line("max_grace", f"{wait_s:g}"))
    if wait_s > _LONG_WAIT_S:
        why = (
            "A job that has preempted may not preempt again for KillWait + MessageTimeout. If it "
            "still lacks a node, it waits that long."
        )
        return consider("KillWait", f"{wait_s:g} s", why, conf("KillWait", "30"))
    return ok("KillWait", f"{wait_s:g} s")
