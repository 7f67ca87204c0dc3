"""Failing trainers, and nodes on which trainers fail: which of them to give up or leave alone.

Pure: states and views in, the next states out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.reconcile import leave
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.failing import Failing, Suspect
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Place, nodes_of

_OUTAGE_S = 900.0  # how long a trainer that has trained before may wait for a file system
_CERTAIN = 3  # failures on different nodes
_SUSPICIOUS = 2  # failures in a row on the same node


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequences of failures: trainers' next states (by array), and the nodes to avoid.

    ``leaving`` ends elements on nodes that may be bad.
    """

    states: Mapping[int, TrainerState]
    avoid: Mapping[str, float]
    leaving: tuple[Shrink, ...] = ()


def judge(picture: Picture, free: frozenset[Place], settings: Settings) -> Verdict:
    """Give up trainers that fail everywhere, and take others off nodes that may be bad.

    ``free`` are the places in which trainers could be tried now.
    """
    now_s, avoid = picture.now_s, picture.avoid
    in_service = picture.snapshot.in_service
    failing = [
        (view, view.state.failing)
        for view in picture.views
        if view.state.failing is not None and not view.over
    ]
    shared = Counter(one.nodes[0] for _, one in failing if len(one.nodes) == 1)
    # One node at a time for all of a user's trainers that have never trained: a mistake in several
    # scripts must not take nodes from others.
    taken = {view.trainer.user: view.array for view, one in failing if _suspects(one, avoid)}
    states: dict[int, TrainerState] = {}
    leaving: list[Shrink] = []
    for view, mine in failing:
        if _hopeless(mine, in_service, now_s, settings):
            avoid = _innocent(mine, avoid)
            states[view.array] = replace(view.state, over=_why(mine), failing=None)
        elif (
            mine.node
            and (mine.trained or taken.get(view.trainer.user, view.array) == view.array)
            and _may_be_bad(mine, view, free, shared, settings)
        ):
            taken[view.trainer.user] = view.array
            until_s = now_s + settings.bad_node_s
            # One at a time for each trainer, so that no user can block many nodes.
            avoid = {**_innocent(mine, avoid), mine.node: until_s}
            suspect = Suspect(mine.node, mine.on_node, until_s)
            states[view.array] = replace(view.state, failing=replace(mine, suspect=suspect))
            leaving += leave(view, {mine.node}, f"{mine.node} may be a bad node")
    return Verdict(states, avoid, tuple(leaving))


def _hopeless(
    failing: Failing, in_service: frozenset[str], now_s: float, settings: Settings
) -> bool:
    if failing.trained and now_s - failing.since_s < _OUTAGE_S:
        return False
    if len(failing.nodes) > 1 and failing.count >= _CERTAIN:
        return True
    # There was only one node to try it on, or the node on which it failed is not known.
    elsewhere = bool(failing.nodes) and bool(in_service.difference(failing.nodes))
    return failing.count >= settings.max_failures * (2 if elsewhere else 1)


def _may_be_bad(
    failing: Failing,
    view: TrainerView,
    free: frozenset[Place],
    shared: Mapping[str, int],
    settings: Settings,
) -> bool:
    """Whether the node on which it failed last may be the reason, and there is another to try."""
    if failing.suspect is not None and failing.suspect.node == failing.node:
        return failing.on_node > failing.suspect.after  # it came back after all, and failed again
    if len(failing.nodes) > 1 and not failing.trained:
        return False  # its script is the more likely reason
    if shared[failing.node] > 1:
        return True  # others failed there too
    elsewhere = nodes_of(free | view.places) - {failing.node}
    return failing.on_node >= (_SUSPICIOUS if elsewhere else settings.max_failures)


def _why(failing: Failing) -> str:
    nodes = f" on {', '.join(failing.nodes)}" if failing.nodes else ""
    return f"failed {failing.count} times without progress{nodes}\n{failing.text}".strip()


def _innocent(failing: Failing, avoid: Mapping[str, float]) -> Mapping[str, float]:
    """Return ``avoid`` without the node that is there because of this trainer's failures."""
    if failing.suspect is None or not _suspects(failing, avoid):
        return avoid
    return {node: until_s for node, until_s in avoid.items() if node != failing.suspect.node}


def _suspects(failing: Failing, avoid: Mapping[str, float]) -> bool:
    """Whether a node is left alone because of this trainer's failures."""
    suspect = failing.suspect
    return suspect is not None and avoid.get(suspect.node) == suspect.until_s
