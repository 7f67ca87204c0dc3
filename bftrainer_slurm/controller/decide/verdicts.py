"""Decides which failing trainers to give up, and which nodes to avoid because trainers fail there.

A trainer that fails on a node avoids it: it may be at fault itself. If trainers of two users do,
all trainers avoid the node. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.reconcile import leave
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import FAILED, Evidence
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.controller.state.view import TrainerView

_OUTAGE_S = 900.0  # a trainer that has trained before may fail this long: a file system may be down
_CERTAIN = 3  # failures on several nodes: the trainer is at fault
_SUSPICIOUS = 2  # failures in a row on one node: the node may be at fault


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequences of failures."""

    states: Mapping[int, TrainerState]  # new ones, by array
    bad: tuple[Evidence, ...] = ()
    leaving: tuple[Shrink, ...] = ()  # of elements on nodes that may be bad


def judge(cluster: ClusterView, free: frozenset[str], settings: Settings) -> Verdict:
    """Give up trainers that fail everywhere; keep others off nodes that may be bad.

    ``free`` are the nodes on which a failing trainer could be tried now.
    """
    now_s, bad, in_service = cluster.now_s, cluster.bad, cluster.snapshot.in_service
    failing = [
        (view, one) for view in cluster.views if not view.over and (one := view.state.failing)
    ]
    for view, one in failing:
        if view.abandoned and not one.trained:
            bad = _without(view, bad)
    failing = [(view, one) for view, one in failing if not view.abandoned]
    shared = _users_by_node(failing)
    states: dict[int, TrainerState] = {}
    leaving: list[Shrink] = []
    for view, mine in failing:
        nodes = (free | view.nodes) - {mine.node}
        elsewhere = len(nodes) >= view.trainer.record.min_nodes
        if _hopeless(mine, view, in_service, now_s, settings):
            if view.untried(now_s):
                continue  # its script may train on fewer nodes
            bad = _without(view, bad)
            states[view.array] = replace(view.state, over=_why(mine), failing=None)
        elif mine.node and _may_be_bad(mine, elsewhere, shared, settings):
            # It counts on one node at a time, so that nobody can block many nodes.
            bad, until_s = _without(view, bad), now_s + settings.bad_node_s
            if not view.state.tried.in_question(mine.node):
                bad = (*bad, Evidence(mine.node, view.trainer.user, view.array, FAILED, until_s))
            state = refuse(view.state, {mine.node}, until_s)
            states[view.array] = replace(state, failing=replace(mine, counted=mine.on_node))
            leaving += leave(view, {mine.node}, f"{mine.node} may be a bad node")
    return Verdict(states, bad, tuple(leaving))


def _users_by_node(failing: Iterable[tuple[TrainerView, Failing]]) -> Mapping[str, int]:
    """Return, for each node, how many users have trainers that failed there and nowhere else."""
    users = {(one.nodes[0], view.trainer.user) for view, one in failing if len(one.nodes) == 1}
    return Counter(node for node, _ in users)


def _hopeless(
    failing: Failing,
    view: TrainerView,
    in_service: frozenset[str],
    now_s: float,
    settings: Settings,
) -> bool:
    if failing.trained and now_s - failing.since_s < _OUTAGE_S:
        return False
    if len(failing.nodes) > 1 and failing.count >= _CERTAIN:
        return True
    # All failures were on one node, or their nodes are not known.
    elsewhere = bool(failing.nodes) and bool(in_service.difference(failing.nodes))
    patience = 2 if elsewhere and _is_well(failing, view) else 1
    return failing.count >= patience * settings.max_failures


def _is_well(failing: Failing, view: TrainerView) -> bool:
    """Whether a trainer has trained, or runs on enough nodes on which it has not failed."""
    others = set(view.running().values()).difference(failing.nodes)
    return failing.trained or len(others) >= view.trainer.record.min_nodes


def _may_be_bad(
    failing: Failing, elsewhere: bool, shared: Mapping[str, int], settings: Settings
) -> bool:
    """Whether the node of the last failures may be their cause.

    ``elsewhere``: whether there are other nodes to try. ``shared``: users who fail on each node.
    """
    if failing.counted:
        return failing.on_node > failing.counted  # it has failed there again since
    if len(failing.nodes) > 1 and not failing.trained:
        return False  # its script is the more likely cause
    if shared[failing.node] > 1:
        return True  # trainers of other users failed there too
    return failing.on_node >= (_SUSPICIOUS if elsewhere else settings.max_failures)


def _why(failing: Failing) -> str:
    nodes = f" on {', '.join(failing.nodes)}" if failing.nodes else ""
    return f"failed {failing.count} times without progress{nodes}\n{failing.text}".strip()


def _without(view: TrainerView, bad: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence without this trainer's failures."""
    return tuple(one for one in bad if (one.array, one.why) != (view.array, FAILED))
