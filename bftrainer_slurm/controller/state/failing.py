"""Counts a trainer's failures in a row. Pure.

``decide.verdicts`` acts on the counts.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

_IN_A_ROW_S = 3600.0  # failures further apart are unrelated
_REST_S = 5.0  # backoff after a failure, doubled by each further failure ...
_DOUBLED = 6  # ... at most this often,
_DOUBLED_AT_ONCE = 1  # or this often if the script fails at its start: its user should know soon


@dataclass(frozen=True, slots=True)
class Failing:
    """A trainer's failures in a row. Times are Unix seconds."""

    since_s: float  # of the first failure
    last_s: float = 0.0
    count: int = 0  # failures without progress in between
    nodes: tuple[str, ...] = ()  # where these ``count`` failures were, as far as known
    node: str = ""  # where the last ``on_node`` failures were, without progress there since
    on_node: int = 0
    counted: int = 0  # so many of them have counted against the node
    text: str = ""  # the script's last output
    trained: bool = False  # whether the trainer has ever made progress
    at_once: bool = False  # whether the script failed at its start

    @property
    def in_a_row(self) -> int:
        """How often the trainer failed in a row, anywhere or on ``node``."""
        return max(self.count, self.on_node)

    @property
    def failed_on(self) -> tuple[str, ...]:
        """The nodes on which the trainer failed, as far as known."""
        return self.nodes or ((self.node,) if self.node else ())

    @property
    def rest_s(self) -> float:
        """How long the trainer gets no nodes after a failure (backoff)."""
        most = _DOUBLED_AT_ONCE if self.at_once else _DOUBLED
        return _REST_S * float(2 ** min(self.count - 1, most))


def add_failure(
    before: Failing | None,
    nodes: Sequence[str],
    text: str,
    trained: bool,
    now_s: float,
    at_once: bool = False,
) -> Failing:
    """Count one failure, on one or several ``nodes``; these are empty if the node is unknown.

    ``trained`` is true if the trainer has ever made progress: then its script is not simply wrong.
    """
    if before is None or now_s - before.last_s > _IN_A_ROW_S:
        before = Failing(since_s=now_s)
    since_s = before.since_s if before.count else now_s
    node, on_node, counted = before.node, before.on_node, before.counted
    if len(nodes) == 1:
        same, node = nodes[0] == node, nodes[0]
        on_node, counted = (on_node + 1, counted) if same else (1, 0)
    return replace(
        before,
        since_s=since_s,
        count=before.count + 1,
        node=node,
        on_node=on_node,
        counted=counted,
        nodes=(*before.nodes, *(one for one in nodes if one not in before.nodes)),
        text=text,
        trained=trained,
        at_once=at_once,
        last_s=now_s,
    )


def after_progress(failing: Failing, nodes: Set[str], now_s: float) -> Failing | None:
    """Return the failures that still count after the trainer has made progress on ``nodes``.

    Failures on a node are forgotten when the trainer trains on that node, or after an hour.
    Progress on other nodes says nothing about it.
    """
    if not failing.node or failing.node in nodes or now_s - failing.last_s > _IN_A_ROW_S:
        return None
    return replace(failing, count=0, nodes=(), trained=True)
