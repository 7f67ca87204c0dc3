"""Reads memory, processors and GRES as Slurm writes them for nodes and jobs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from bftrainer_slurm.model import Memory, Resources

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmgtp]?)")
_IN_PARENTHESES = re.compile(r"\([^)]*\)")  # (null), and the sockets of a GPU: (S:0-1)
_EACH = ("", "cpu", "gpu")
_OF_JOB = re.compile(r"gres[:/]", re.IGNORECASE)


@lru_cache(maxsize=1000)  # nodes and trainers are much alike
def read_resources(memory: str, cpus: tuple[str, ...], gres: str) -> Resources:
    """Return a node's resources, or what a job asks of a node; unreadable texts count as 0.

    ``memory`` is in MB unless it has another unit. If it ends in a "c", it is for each processor
    of the node. The largest of ``cpus`` counts.
    """
    size_mb = megabytes(memory.removesuffix("c"))
    count = max((int(one) for one in cpus if one.isdecimal()), default=0)
    each_mb = size_mb if memory.endswith("c") else 0.0
    return Resources(size_mb, count, frozenset(_gres(gres).items()), each_mb)


def megabytes(text: str) -> float:
    """Return an amount of memory, in MB unless it has another unit; 0 if it cannot be read."""
    amount = text.lower()
    return (_number(f"{amount}m" if amount.isdigit() else amount) or 0.0) / _UNITS["m"]


def memory_asked(text: str) -> Memory:
    """Return the memory that a job asks for.

    ``text`` is an amount for each node, each processor (``400/cpu``) or each GPU (``700/gpu``).
    """
    amount, _, each = text.partition("/")
    node_mb, cpu_mb, gpu_mb = (megabytes(amount) if each == one else 0.0 for one in _EACH)
    return Memory(node_mb, cpu_mb, gpu_mb)


def read_used(text: str) -> dict[str, Resources]:
    """Return what jobs have on each node, from ``scontrol --details --oneliner show node``.

    Only operators can write free texts about a node. The first field of a name counts. scontrol
    leaves out GresUsed if a node has no GRES.
    """
    found: dict[str, Resources] = {}
    for line in text.splitlines():
        fields: dict[str, str] = {}
        for word in line.split():
            key, equals, value = word.partition("=")
            if equals:
                fields.setdefault(key, value)
        memory, cpus = fields.get("AllocMem", ""), fields.get("CPUAlloc", "")
        gres = fields.get("GresUsed", "" if fields.get("Gres") == "(null)" else None)
        if "NodeName" in fields and gres is not None and memory and cpus:
            found[fields["NodeName"]] = read_resources(memory, (cpus,), gres)
    return found


def gres_of_job(asked: str) -> str:
    """Return the GRES of a job's requests (``gres:gpu:2,cpu=4``), as a node would list them."""
    parts = (_OF_JOB.split(one, 1) for one in asked.split(",") if _OF_JOB.match(one))
    return ",".join(name for _, name in parts)


def _gres(text: str) -> Counter[str]:
    """Count GRES by ``name``, and also by ``name:type`` where there is a type."""
    counts: Counter[str] = Counter()
    for item in _IN_PARENTHESES.sub("", text).lower().split(","):
        name, *more = re.split("[:=]", item)
        kinds = [one for one in more if one != "no_consume"]
        count = _number(kinds[-1]) if kinds else None
        if count is not None:
            kinds.pop()
        if name not in ("", "n/a", "none"):
            for key in {name, ":".join([name, *kinds])}:
                counts[key] += 1 if count is None else int(count)
    return counts


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text)
    return None if found is None else float(found[1]) * _UNITS[found[2]]
