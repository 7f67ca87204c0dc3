"""What only Slurm knows of a submission: jobs of the same name, and what the nodes have."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bftrainer_slurm.submission.directives import SubmissionError

# Runs one of Slurm's commands and returns what it prints; raises NoAnswerError.
Ask = Callable[[Sequence[str]], str]

_SINGLETON = "singleton"
_LIVE = "PENDING,RUNNING,SUSPENDED,CONFIGURING,COMPLETING"
_SHOWN = 5  # kinds of nodes in a sentence
_UNKNOWN_MB = 1  # what Slurm shows of a node without RealMemory
_GPU_OPTIONS = ("gpus-per-node", "gres")
_MEMORY = re.compile(r"0*([1-9]\d{0,8})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_IN_MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_GPUS = re.compile(r"(?:gres[:/])?gpu(?::([^:(,=]+(?=:)))?[:=](\d+)", re.ASCII)


class NoAnswerError(Exception):
    """Slurm did not answer, or refused to."""


def without_singleton(given: Mapping[str, str], ask: Ask) -> str | None:
    """Return the dependency with this name's present jobs in place of a singleton.

    With the singleton Slurm would run one element at a time. None: there is none to replace;
    "": nothing is left of the dependency.

    Raises:
        SubmissionError: the jobs are not known, or one of several dependencies would do.
    """
    clauses = given.get("dependency", "").split(",")
    if _SINGLETON not in given.get("dependency", ""):
        return None
    if any("?" in clause for clause in clauses):
        raise SubmissionError(
            "--dependency=singleton cannot be one of several that will do; write it alone, or with "
            "commas between"
        )
    user = f"--user={os.getuid()}"
    try:
        lines = ask(("squeue", "--all", "--noheader", f"--states={_LIVE}", user, "--format=%F %j"))
    except NoAnswerError as error:
        raise SubmissionError(
            "the jobs that --dependency=singleton is to wait for are not known now; write "
            "--dependency=afterany:JOB"
        ) from error
    named = (line.partition(" ") for line in lines.splitlines())
    jobs = dict.fromkeys(job for job, _, name in named if name == given["job-name"])
    after = [f"afterany:{':'.join(jobs)}"] if jobs else []
    return ",".join([one for one in clauses if one != _SINGLETON] + after)


def check_nodes(
    given: Mapping[str, str], partition: str, ask: Ask, *, of_cores: bool = False
) -> None:
    """Refuse what no node of the trainers' partition has.

    ``of_cores``: the trainer asks for cores or memory and no GPUs where trainers share nodes by
    GPUs; it is refused where all nodes have GPUs.

    Raises:
        SubmissionError: in one line, with what the nodes have.
    """
    wanted = tuple(filter(None, (*map(partial(_gpus_of, given), _GPU_OPTIONS), _cpus(given))))
    memory = _memory(given)
    if not (wanted or memory or of_cores):
        return
    # With --partition sinfo takes no --all, and shows no hidden partitions.
    words = ("sinfo", "--local", "--all", "--noheader", "--exact", "--format=%R|%c|%m|%G")
    try:
        rows = [line.split("|", 3) for line in ask(words).splitlines()]
    except NoAnswerError:
        return
    nodes = [_Node.of(*of) for name, *of in rows if name == partition and len(of) == 3]
    if memory and any(node.memory_mb > _UNKNOWN_MB for node in nodes):
        wanted += (memory,)
    if any(node.gpus for node in nodes):
        if of_cores and all(node.gpus for node in nodes):
            raise SubmissionError(
                f"all nodes of partition {partition} have GPUs, and trainers share nodes by GPUs: "
                "write --gpus-per-node, or --exclusive for whole nodes"
            )
    else:
        wanted = tuple(one for one in wanted if not one.gpus)
    for some in (*((one,) for one in wanted), wanted):
        if nodes and not any(all(node.has(one) for one in some) for node in nodes):
            asked = " ".join(one.asked for one in some)
            raise SubmissionError(
                f"{asked}: no node of partition {partition} has that; there are nodes with "
                f"{_there(nodes, some)}"
            )


class _Wanted(NamedTuple):
    """What an option asks for of each node."""

    asked: str
    gpus: tuple[tuple[str, int], ...] = ()
    cpus: int = 0
    memory_mb: float = 0.0


class _Node(NamedTuple):
    """What a kind of node has."""

    cpus: int
    memory_mb: float
    gpus: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, cpus: str, memory_mb: str, gres: str) -> _Node:
        """Read a line of sinfo."""
        has_cpus, has_mb = (int(text) if text.isdigit() else 0 for text in (cpus, memory_mb))
        return cls(has_cpus, has_mb, tuple(_gpus(gres)))

    def has(self, wanted: _Wanted) -> bool:
        """Whether it has as much as that."""
        gpus = all(
            count <= sum(n for of, n in self.gpus if kind in ("", of))
            for kind, count in wanted.gpus
        )
        return gpus and wanted.cpus <= self.cpus and wanted.memory_mb <= self.memory_mb


def _gpus_of(given: Mapping[str, str], name: str) -> _Wanted | None:
    gpus = _gpus(given.get(name, ""), "" if name == "gres" else "gpu:")
    return _Wanted(_option(given, name), gpus=tuple(gpus)) if gpus else None


def _cpus(given: Mapping[str, str]) -> _Wanted | None:
    each, tasks = given.get("cpus-per-task", ""), given.get("ntasks-per-node") or "1"
    if not (each.isdigit() and tasks.isdigit()):
        return None
    names = ("cpus-per-task", *(("ntasks-per-node",) if int(tasks) > 1 else ()))
    asked = " ".join(_option(given, name) for name in names)
    return _Wanted(asked, cpus=int(each) * int(tasks))


def _memory(given: Mapping[str, str]) -> _Wanted | None:
    if not (match := _MEMORY.fullmatch(given.get("mem", ""))):
        return None
    return _Wanted(_option(given, "mem"), memory_mb=int(match[1]) * _IN_MB[match[2].upper()])


def _option(given: Mapping[str, str], name: str) -> str:
    return f"--{name}={given[name][:40]}"


def _there(nodes: Sequence[_Node], wanted: Sequence[_Wanted]) -> str:
    """Say what the kinds of nodes have of what is wanted."""
    kinds = []
    for node in nodes:
        has = []
        if any(one.gpus for one in wanted):
            gpus = (f"{kind}{':' * bool(kind)}{count}" for kind, count in node.gpus)
            has.append(" and ".join(gpus) or "no GPUs")
        if any(one.cpus for one in wanted):
            has.append(f"{node.cpus} CPUs")
        if any(one.memory_mb for one in wanted):
            has.append(f"{node.memory_mb:.0f} MB")
        kinds.append(", ".join(has))
    return " and with ".join(sorted(set(kinds))[:_SHOWN])


def _gpus(text: str, before: str = "") -> list[tuple[str, int]]:
    """Return the kinds ("" for any) and numbers in ``gpu:a100:4(S:0-1),gpu:2``."""
    parts = (before + part for part in text.split(",") if part)
    matches = filter(None, map(_GPUS.match, parts))
    return [(match[1] or "", int(match[2])) for match in matches]
