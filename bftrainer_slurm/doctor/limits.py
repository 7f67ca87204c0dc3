"""Checks what the trainers' QOS allows them to have; that it has a limit is in ``job_table``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bftrainer_slurm.doctor.facts import Asking, Facts
from bftrainer_slurm.doctor.finding import Change, Finding, consider, must, shell

# As sacctmgr names them in a table, and in a command. PU: of one user.
OF_JOBS = {
    "GrpSubmit": "grpsubmitjobs",
    "MaxSubmitPU": "maxsubmitjobspu",
    "GrpJobs": "grpjobs",
    "MaxJobsPU": "maxjobspu",
}
OF_RESOURCES = {"GrpTRES": "grptres", "MaxTRESPU": "maxtrespu"}
_TRES = {"node": re.compile(r"(?:^|,)node=(\d+)"), "gres/gpu": re.compile(r"(?:^|,)gres/gpu=(\d+)")}
_SMALLEST = 2  # elements of a trainer of one node
_WHY = (
    "Each element is a job of one node, and a trainer of up to N nodes has N + 1 elements from its "
    "submission on. "
)


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit of the QOS: as sacctmgr shows it and takes it, and of what (empty: of jobs)."""

    key: str
    command: str
    most: int
    of: str = ""

    @property
    def unit(self) -> str:
        return f"{self.of}=" if self.of else ""

    @property
    def submitted(self) -> bool:
        """Whether it counts elements from their submission on."""
        return "Submit" in self.key

    def takes(self, one: Asking) -> int:
        """Return how much of it a trainer takes with all its nodes."""
        return one.most * one.gpus if self.of == "gres/gpu" else one.most + self.submitted

    def needs(self, one: Asking) -> int:
        """Return how much of it a trainer needs at least."""
        if self.submitted:
            return self.takes(one)
        return one.least * (one.gpus if self.of == "gres/gpu" else 1)


def check(facts: Facts) -> Iterator[Finding]:
    """Check each limit of the QOS by what the trainers here ask for, or else by the partition."""
    name = facts.option("qos") or (facts.partition or {}).get("QoS", "N/A")
    row = (facts.qos or {}).get(name)
    if row is not None and facts.nodes:
        for limit in _limits(row):
            if (found := _judged(facts, name, limit)) is not None:
                yield found


def _limits(row: Mapping[str, str]) -> Iterator[_Limit]:
    for key, command in OF_JOBS.items():
        if (value := row.get(key, "")).isdigit():
            yield _Limit(key, command, int(value))
    for key, command in OF_RESOURCES.items():
        for of, pattern in _TRES.items():
            if (match := pattern.search(row.get(key, ""))) is not None:
                yield _Limit(key, command, int(match[1]), of)


def _judged(facts: Facts, name: str, limit: _Limit) -> Finding | None:
    """Return what a limit means for the trainers here; None: it cannot be told."""
    title, found = f"{limit.key} of {name}", f"{limit.unit}{limit.most}"

    def change(enough: int) -> Change:
        return shell(f"sacctmgr modify qos {name} set {limit.command}={limit.unit}{enough}")

    trainers = facts.network.trainers
    if limit.of == "gres/gpu":
        trainers = tuple(one for one in trainers if one.gpus)
    if not trainers:
        if limit.of == "gres/gpu":
            return None
        enough = facts.nodes + limit.submitted
        whose = " of one user" if limit.key.endswith("PU") else ""
        why = f"{_WHY}With this limit trainers{whose} cannot use the {facts.nodes} nodes of their "
        why += "partition."
        return consider(title, found, why, change(enough), unless=limit.most >= enough)
    largest = max(trainers, key=limit.needs)
    together = Counter[str]()
    for one in trainers:
        together[one.user if limit.key.endswith("PU") else ""] += limit.takes(one)
    most = max(together.values())
    enough = most if limit.submitted or limit.of == "gres/gpu" else min(most, facts.nodes)
    if limit.most < limit.needs(largest):
        which = f"{largest.user}'s trainer of {largest.least} to {largest.most} nodes"
        what = "could not be submitted again" if limit.submitted else "never starts"
        return must(title, found, f"{_WHY}With this limit {which} {what}.", change(enough))
    whose = f" of {max(together, key=lambda one: together[one])}" if "" not in together else ""
    if limit.submitted:
        why = f"The trainers{whose} take {most} of it: sbatch refuses the next one."
        more, fine = change(most + limit.takes(largest)), limit.most >= most + _SMALLEST
        return consider(title, found, why, more, unless=fine)
    why = f"The trainers{whose} ask for {enough} together; what is above the limit waits."
    return consider(title, found, why, change(enough), unless=limit.most >= enough)
