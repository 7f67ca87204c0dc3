"""What Slurm says about nodes: lists of names (``n[1-3,7]``), and what a state allows.

Expanding goes through ClusterShell, so that asking ``scontrol show hostnames`` is not needed.
"""

from __future__ import annotations

import re

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from bftrainer_slurm.model import NodeState

_NOTHING = ("", "(null)", "None", "N/A", "n/a")

# Flags of `scontrol show node` (IDLE+PLANNED) that leave a node as usable as it is without them:
# backfill has it in mind for a waiting job; it came with the cloud or by itself.
_HARMLESS = {"PLANNED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"}
_BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
_DRAINING = {"DRAIN", "DRAINING", "REBOOT_REQUESTED"}
_REBOOT_REQUESTED = "@"
_WORD = re.compile(r"[A-Z_]+\Z")


def expand(nodes: str | None) -> tuple[str, ...]:
    """Return the names in a node list as Slurm writes it; none where it says that there is none."""
    if nodes is None or nodes in _NOTHING:
        return ()
    if "[" not in nodes and "," not in nodes:
        return (nodes,)
    try:
        return tuple(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ()


def node_state(text: str) -> NodeState:
    """Read a node's state as ``sinfo`` (``idle*``) or ``scontrol`` (``IDLE+DRAIN``) writes it.

    Whatever is not plainly idle or busy is unavailable: a suffix (not responding ``*``, powered
    down ``~``, rebooting ``^``, under maintenance ``$``, ...) and any unknown word included. A
    trailing ``-`` means planned by backfill, which leaves an idle node idle.
    """
    plain = text.upper().removesuffix("-")
    words = set(plain.removesuffix(_REBOOT_REQUESTED).split("+")) - _HARMLESS
    if not all(_WORD.match(word) for word in words):
        return NodeState.UNAVAILABLE
    if plain.endswith(_REBOOT_REQUESTED) or words & _DRAINING:
        left = words - _DRAINING
        busy = "DRAINING" in words or left & _BUSY
        return NodeState.DRAINING if busy and left <= _BUSY else NodeState.UNAVAILABLE
    if words <= {"IDLE"}:  # nothing but harmless words: sinfo says just "planned"
        return NodeState.IDLE
    if words <= _BUSY | {"IDLE"}:
        return NodeState.BUSY
    return NodeState.UNAVAILABLE
