"""Reads and writes Slurm's node lists (``n[1-3,7]``), and reads its node states.

ClusterShell expands unusual lists, so that ``scontrol show hostnames`` is not needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from bftrainer_slurm.arrays import format_ranges
from bftrainer_slurm.model import NodeState

_NOTHING = ("", "(null)", "None", "N/A", "n/a")

# Flags of `scontrol show node` (IDLE+PLANNED) with which a node is still usable: backfill has
# planned it for a waiting job; it comes from the cloud, or has registered by itself.
_HARMLESS = {"PLANNED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"}
_BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
_DRAINING = {"DRAIN", "DRAINING", "REBOOT_REQUESTED"}
_REBOOT_REQUESTED = "@"
_POWER = {"~": "POWERED_DOWN", "%": "POWERING_DOWN", "!": "POWER_DOWN", "#": "POWERING_UP"}
_POWER_WORDS = {*_POWER.values(), "POWER_UP"}
_NUMBERED = re.compile(r"(.*?)(\d{1,9})\Z", re.DOTALL)
# Slurm's form for names with one number at the end; ClusterShell takes many times as long for it.
_PART = re.compile(r"([\w.-]+)(?:\[([\d,-]+)\])?", re.ASCII)
_PLAIN_PART = r"[\w.-]+(?:\[\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*\])?"
_PLAIN = re.compile(rf"{_PLAIN_PART}(?:,{_PLAIN_PART})*\Z", re.ASCII)
_MARK = re.compile(r"(?:^|,)([^][,]+),\1(?=,|\Z)")
_BRACKETS = re.compile(r"\[([\d,-]+)\]", re.ASCII)
_TOP_COMMA = re.compile(r",(?![^\[]*\])")
_MOST_NODES = 65_536  # Slurm's limit for one list (MAX_RANGE)
_WORD = re.compile(r"[A-Z_]+\Z")


def expand(nodes: str | None) -> tuple[str, ...]:
    """Return the names in a node list of Slurm; empty if it is one of Slurm's words for none."""
    if nodes is None or nodes in _NOTHING:
        return ()
    if "[" not in nodes and "," not in nodes:
        return (nodes,)
    if _PLAIN.match(nodes):
        return tuple(dict.fromkeys(chain.from_iterable(map(_names, _PART.finditer(nodes)))))
    try:
        return tuple(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ()


@lru_cache(maxsize=64)
def expand_user_list(nodes: str) -> frozenset[str]:
    """Return the names in a list that a user wrote.

    Raises:
        ValueError: the list names no node, or more than Slurm takes.
    """
    some = most_names(nodes) <= _MOST_NODES
    names = frozenset(expand(nodes)) - {""} if some else frozenset[str]()
    if not names:
        raise ValueError(f"its list of nodes must name at least one, and at most {_MOST_NODES}")
    return names


def most_names(nodes: str) -> int:
    """Return for how many names a list stands at most, without expanding it."""
    return sum(
        math.prod(map(_name_count, _BRACKETS.findall(part))) for part in _TOP_COMMA.split(nodes)
    )


def _name_count(ranges: str) -> int:
    """Return for how many names a part in brackets stands, at most."""
    ends = (one.partition("-") for one in ranges.split(",") if one)
    return sum(max(1, int(last or 0) - int(first or 0) + 1) for first, _, last in ends)


def _names(part: re.Match[str]) -> Iterable[str]:
    """Return the names in one part of a list: ``n3``, or ``n[1-3,7]``."""
    prefix, ranges = part.groups()
    if ranges is None:
        return (prefix,)
    names: list[str] = []
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        names += map(f"{prefix}%0{len(first)}d".__mod__, numbers)
    return names


def fold(nodes: Iterable[str]) -> str:
    """Return a node list for Slurm, with ranges of the last number in a name.

    ClusterShell's fold is correct too, but takes half a second for 10,000 nodes in racks.
    """
    numbers: dict[tuple[str, int], list[int]] = {}
    parts = []
    for node in nodes:
        match = _NUMBERED.match(node)
        if match is None:
            parts.append(node)
        else:
            numbers.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    for (prefix, width), of_prefix in numbers.items():
        ordered = sorted(set(of_prefix))
        ranges = ",".join(format_ranges(ordered, width))
        parts.append(prefix + (ranges if len(ordered) == 1 else f"[{ranges}]"))
    return ",".join(parts)


def barred_list(excluded: frozenset[str], others: frozenset[str]) -> str:
    """Return the list of nodes to exclude; ``excluded_in`` finds ``excluded`` in it again.

    A name written twice in a row separates the user's exclusions from the others. Slurm keeps the
    list of an update unchanged, and no list of a submission repeats a name (22.05 to 26.05).
    """
    ours = others - excluded
    if not ours:
        return fold(excluded)
    mark = min(ours)
    return ",".join(filter(None, (fold(excluded), mark, mark, fold(ours - {mark}))))


@lru_cache(maxsize=64)  # most elements have one of a few lists
def excluded_in(nodes: str) -> frozenset[str]:
    """Return the user's part of an element's ``ExcNodeList``, without what a grow has added."""
    marked = _MARK.search(nodes)
    return frozenset(expand(nodes[: marked.start()] if marked else nodes))


@lru_cache(maxsize=16)  # lists of 10,000 names can take a megabyte
def barred_in(nodes: str) -> frozenset[str]:
    """Return all nodes of an element's ``ExcNodeList``."""
    return frozenset(expand(nodes))


def node_state(text: str) -> NodeState:
    """Read a node's state as ``sinfo`` (``idle*``) or ``scontrol`` (``IDLE+DRAIN``) writes it.

    A node is unavailable unless it is clearly idle or busy, or switched off while it was idle. A
    suffix (not responding ``*``, rebooting ``^``, under maintenance ``$``, ...) or an unknown word
    make it so. A trailing ``-`` means planned by backfill; an idle node then still counts as idle.

    Slurm gives jobs nodes that are switched off, and wakes these for them: the node is busy then.
    """
    plain = text.upper().removesuffix("-")
    if plain[-1:] in _POWER:
        plain = f"{plain[:-1]}+{_POWER[plain[-1]]}"
    words = set(plain.removesuffix(_REBOOT_REQUESTED).split("+")) - _HARMLESS
    power = words & _POWER_WORDS
    words -= power | {"NOT_RESPONDING"} if power else set()
    if not all(_WORD.match(word) for word in words):
        return NodeState.UNAVAILABLE
    if plain.endswith(_REBOOT_REQUESTED) or words & _DRAINING:
        left = words - _DRAINING
        busy = "DRAINING" in words or left & _BUSY
        return NodeState.DRAINING if busy and left <= _BUSY else NodeState.UNAVAILABLE
    if words <= {"IDLE"}:  # only harmless words: sinfo says just "planned"
        if power and power <= {"POWERING_UP", "POWER_UP"}:
            return NodeState.UNAVAILABLE
        return NodeState.POWERED_DOWN if power else NodeState.IDLE
    if words <= _BUSY | {"IDLE"}:
        return NodeState.DRAINING if "POWER_DOWN" in power else NodeState.BUSY
    return NodeState.UNAVAILABLE
