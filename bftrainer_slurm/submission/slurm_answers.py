"""What only Slurm knows of a submission: jobs of the same name, and what the nodes have."""

from __future__ import annotations

import math
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
_CPU_OPTIONS = ("cpus-per-task", "ntasks-per-node")
_MEMORY = re.compile(r"0*([1-9]\d{0,8})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_COUNTS_MEMORY = re.compile(r"^SelectTypeParameters\b.*MEMORY", re.IGNORECASE | re.MULTILINE)
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
    given: Mapping[str, str],
    partition: str,
    ask: Ask,
    *,
    least: int = 1,
    whole: bool = True,
    of_cores: bool = False,
) -> None:
    """Refuse what no node of the trainers' partition has, and more nodes than it has.

    ``least`` is how many the trainer needs at a time; ``whole``: all of each. ``of_cores``: it
    asks for cores or memory and no GPUs where trainers share nodes by GPUs; it is refused where
    all nodes have GPUs.

    Raises:
        SubmissionError: in one line, with what there is.
    """
    wanted = tuple(filter(None, (*map(partial(_gpus_of, given), _GPU_OPTIONS), _cpus(given))))
    memory = _memory(given)
    if not (wanted or memory or of_cores or least > 1):
        return
    # With --partition sinfo takes no --all, and shows no hidden partitions.
    words = ("sinfo", "--local", "--all", "--noheader", "--exact", "--noconvert")
    try:
        lines = ask((*words, "--format=%R|%D|%c|%m|%G")).splitlines()
    except NoAnswerError:
        return
    rows = [line.split("|", 4)[1:] for line in lines if line.startswith(f"{partition}|")]
    there = sum(int(of[0]) for of in rows if of[0].isdigit())
    if there and least > there:
        raise SubmissionError(
            f"it needs at least {least} nodes at a time, and partition {partition} has {there}; "
            f"write -N MIN-MAX with a MIN of at most {there}"
        )
    nodes = [_Node.of(*of[1:]) for of in rows if len(of) == 4]
    if memory and any(node.memory_mb > _UNKNOWN_MB for node in nodes):
        wanted += (memory if "mem" in given else _for_cpus(memory, given, whole, ask),)
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
    cpu_memory_mb: float = 0.0  # for each that the node has


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
        memory_mb = max(wanted.memory_mb, wanted.cpu_memory_mb * self.cpus)
        return gpus and wanted.cpus <= self.cpus and memory_mb <= self.memory_mb


def _gpus_of(given: Mapping[str, str], name: str) -> _Wanted | None:
    gpus = _gpus(given.get(name, ""), "" if name == "gres" else "gpu:")
    return _Wanted(_option(given, name), gpus=tuple(gpus)) if gpus else None


def _cpus(given: Mapping[str, str]) -> _Wanted | None:
    asked, cpus = _processors(given)
    return _Wanted(asked, cpus=cpus) if given.get("cpus-per-task", "").isdigit() else None


def _memory(given: Mapping[str, str]) -> _Wanted | None:
    name = "mem" if "mem" in given else "mem-per-cpu"
    if not (match := _MEMORY.fullmatch(given.get(name, ""))):
        return None
    return _Wanted(_option(given, name), memory_mb=int(match[1]) * _IN_MB[match[2].upper()])


def _for_cpus(memory: _Wanted, given: Mapping[str, str], whole: bool, ask: Ask) -> _Wanted:
    """Return what ``--mem-per-cpu`` comes to, where Slurm counts memory; else it asks for once."""
    try:
        counts = _COUNTS_MEMORY.search(ask(("scontrol", "show", "config")))
    except NoAnswerError:
        counts = None
    if counts is None:
        return memory
    if whole:
        asked = f"{memory.asked} for all CPUs of a node"
        return _Wanted(asked, cpu_memory_mb=memory.memory_mb)
    options, cpus = _processors(given)
    return _Wanted(f"{memory.asked} {options}".rstrip(), memory_mb=memory.memory_mb * cpus)


def _processors(given: Mapping[str, str]) -> tuple[str, int]:
    """Return the options that say how many processors of a node its tasks have, and the number."""
    names = [name for name in _CPU_OPTIONS if given.get(name, "").isdigit()]
    asked = " ".join(_option(given, name) for name in names if int(given[name]) > 1)
    return asked, math.prod(int(given[name]) for name in names)


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
        if any(one.cpus or one.cpu_memory_mb for one in wanted):
            has.append(f"{node.cpus} CPUs")
        if any(one.memory_mb or one.cpu_memory_mb for one in wanted):
            has.append(f"{node.memory_mb:.0f} MB")
        kinds.append(", ".join(has))
    return " and with ".join(sorted(set(kinds))[:_SHOWN])


def _gpus(text: str, before: str = "") -> list[tuple[str, int]]:
    """Return the kinds ("" for any) and numbers in ``gpu:a100:4(S:0-1),gpu:2``."""
    parts = (before + part for part in text.split(",") if part)
    matches = filter(None, map(_GPUS.match, parts))
    return [(match[1] or "", int(match[2])) for match in matches]
