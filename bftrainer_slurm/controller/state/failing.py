"""A trainer's failures in a row. Pure.

``decide.verdicts`` acts on them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

_IN_A_ROW_S = 3600.0  # failures further apart are unrelated
_REST_S = 5.0  # after an element failed, doubled by each further failure ...
_DOUBLED = 6  # ... at most so often,
_DOUBLED_AT_ONCE = 1  # or if the script fails at its start: its user should hear of it soon


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node that was left alone after so many failures in a row on it."""

    node: str
    after: int


@dataclass(frozen=True, slots=True)
class Failing:
    """A trainer's failures in a row, ``count`` of them without progress between them.

    ``nodes`` are those on which these were, as far as known; the last ``on_node`` failures were on
    ``node``, on which it has not trained since. ``text`` is the script's last output; ``at_once``
    is true if it failed at its start.
    """

    since_s: float
    last_s: float = 0.0
    count: int = 0
    nodes: tuple[str, ...] = ()
    node: str = ""
    on_node: int = 0
    text: str = ""
    trained: bool = False
    at_once: bool = False
    suspect: Suspect | None = None

    @property
    def in_a_row(self) -> int:
        """How often it failed, or did so on one node while it trained on others."""
        return max(self.count, self.on_node)

    @property
    def failed_on(self) -> tuple[str, ...]:
        """The nodes on which it did, as far as known."""
        return self.nodes or ((self.node,) if self.node else ())

    @property
    def rest_s(self) -> float:
        """For how long the trainer gets no node after an element of it has failed."""
        most = _DOUBLED_AT_ONCE if self.at_once else _DOUBLED
        return _REST_S * float(2 ** min(self.count - 1, most))


def failed(
    before: Failing | None,
    nodes: Sequence[str],
    text: str,
    trained: bool,
    now_s: float,
    at_once: bool = False,
) -> Failing:
    """Count a failure, on one node or on several together; on none if the node is unknown.

    ``trained`` is true if the trainer has ever made progress, so that its script is not simply
    wrong.
    """
    if before is None or now_s - before.last_s > _IN_A_ROW_S:
        before = Failing(since_s=now_s)
    since_s = before.since_s if before.count else now_s
    node, on_node = before.node, before.on_node
    if len(nodes) == 1:
        node, on_node = nodes[0], on_node + 1 if nodes[0] == node else 1
    return replace(
        before,
        since_s=since_s,
        count=before.count + 1,
        node=node,
        on_node=on_node,
        nodes=(*before.nodes, *(one for one in nodes if one not in before.nodes)),
        text=text,
        trained=trained,
        at_once=at_once,
        last_s=now_s,
    )


def blameless(failing: Failing) -> Failing:
    """Return the failures as those of no node in particular."""
    return replace(failing, node="", on_node=0, nodes=(), suspect=None)


def recovered(failing: Failing, nodes: Set[str], now_s: float) -> Failing | None:
    """Return what is left of the failures once the trainer has made progress on these ``nodes``.

    Those in a row on a node are forgotten when it trains on that one, or after an hour: others that
    train well say nothing about it.
    """
    if not failing.node or failing.node in nodes or now_s - failing.last_s > _IN_A_ROW_S:
        return None
    suspect = failing.suspect
    if suspect is not None and suspect.node != failing.node:
        suspect = None
    return replace(failing, count=0, nodes=(), trained=True, suspect=suspect)
