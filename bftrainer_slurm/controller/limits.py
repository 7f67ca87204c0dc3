"""What keeps trainers from nodes that look idle: what they ask for, and what Slurm has said.

Pure. Failures of what runs are told elsewhere (``failures``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bftrainer_slurm.constraint import Constraint, ConstraintError, parse_constraint
from bftrainer_slurm.controller.actions import Action, Hold
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import Memory, Observation, TrainerView, Wait, in_service
from bftrainer_slurm.model import Demands, ElementState, Node

_REFUSED_S = 3600.0  # a node may be given the memory or the feature that it lacks
_WAIT_S = 300.0
_UNFIT = "BadConstraints"  # Slurm says so of a node that can never do, and then holds the job
# Why Slurm leaves an element waiting, where it lies with the trainer or its user: no other node
# would do either. There are hundreds of such limits, all of whose names begin like these.
_OWN_REASONS = (
    *("Account", "Assoc", "BurstBuffer", "DeadLine", "Dependency", "InvalidAccount", "InvalidQOS"),
    *("JobArrayTaskLimit", "Licenses", "MaxMemPerLimit", "PartitionConfig", "PartitionNodeLimit"),
    *("PartitionTimeLimit", "QOS", "Reservation"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Which trainers cannot grow now, and why; which nodes the others cannot have. By array."""

    stuck: Mapping[int, str] = field(default_factory=dict)
    barred: Mapping[int, frozenset[str]] = field(default_factory=dict)


def limits_of(
    views: tuple[TrainerView, ...], observation: Observation, memory: Memory, settings: Settings
) -> Limits:
    """Return what keeps each trainer back. A node that it has is not among those it cannot have."""
    now_s = observation.time_s
    nodes: tuple[Node, ...] = ()
    if any(_is_choosy(view.trainer.demands) or view.array in memory.refused for view in views):
        there = in_service(observation, settings)
        nodes = tuple(node for node in observation.nodes if node.name in there)
    stuck: dict[int, str] = {}
    barred: dict[int, frozenset[str]] = {}
    unfit: dict[Demands, frozenset[str]] = {}
    for view in views:
        demands, array = view.trainer.demands, view.array
        why = why_never(demands) or _why_not_now(memory.waits.get(array), now_s)
        if why is None:
            if demands not in unfit:
                unfit[demands] = _unfit(demands, nodes)
            refused = memory.refused.get(array, {})
            said_no = {node for node, until_s in refused.items() if until_s > now_s}
            out = unfit[demands].union(said_no).difference(view.placed)
            why = _too_few(view, nodes, out)
            barred[array] = out
        if why is not None:
            stuck[array] = why
    return Limits(
        stuck, {array: out for array, out in barred.items() if out and array not in stuck}
    )


def why_never(demands: Demands) -> str | None:
    """Say why a trainer that asks for this is not run at all, None: it is."""
    if demands.licenses:
        return f"it asks for licences ({demands.licenses}), which do not come back with its nodes"
    if demands.reservation:
        return f"it asks for the reservation {demands.reservation}, and runs on idle nodes only"
    try:
        _parsed(demands)
    except ConstraintError as error:
        return str(error)
    return None


def note_refused(views: tuple[TrainerView, ...], memory: Memory, now_s: float) -> Memory:
    """Remember the nodes that Slurm holds an element for that was let go there."""
    for view in views:
        for element in view.with_state(ElementState.HELD):
            release = memory.releases.get(element.id)
            # The same node: a release that never reached Slurm leaves the reason of an older one.
            if element.reason == _UNFIT and release is not None and release.node == element.node:
                memory = keep_apart(memory, view.array, release.node, now_s + _REFUSED_S)
    return memory


def keep_apart(memory: Memory, array: int, node: str | None, until_s: float) -> Memory:
    """Give a trainer no element on this node until then; others may have it."""
    if node is None:
        return memory
    nodes = {**memory.refused.get(array, {}), node: until_s}
    return replace(memory, refused={**memory.refused, array: nodes})


def withdraw(
    views: tuple[TrainerView, ...], memory: Memory, now_s: float
) -> tuple[list[Action], Memory]:
    """Hold elements that wait for something else than their node, and let their trainer wait."""
    actions: list[Action] = []
    for view in views:
        held = []
        for element in view.with_state(ElementState.PENDING):
            if element.reason == _UNFIT:
                memory = keep_apart(memory, view.array, element.node, now_s + _REFUSED_S)
            elif element.reason.startswith(_OWN_REASONS):
                wait = Wait(element.reason, now_s + _WAIT_S)
                memory = replace(memory, waits={**memory.waits, view.array: wait})
            else:
                continue
            held.append(element.id)
        if held:
            actions.append(Hold(tuple(held)))
            kept = {one: rest for one, rest in memory.releases.items() if one not in held}
            memory = replace(memory, releases=kept)
    return actions, memory


def _why_not_now(wait: Wait | None, now_s: float) -> str | None:
    if wait is None or wait.until_s <= now_s:
        return None
    return f"Slurm does not start more of it now: {wait.reason}"


def _too_few(view: TrainerView, nodes: tuple[Node, ...], out: frozenset[str]) -> str | None:
    if not out:
        return None
    fit = sum(node.name not in out for node in nodes)
    if fit >= view.trainer.record.min_nodes:
        return None
    return (
        f"of {len(nodes)} nodes {fit} will do: others lack what it asks for, or Slurm refuses them"
    )


def _is_choosy(demands: Demands) -> bool:
    """Whether there may be nodes that it cannot have; where nobody is, none need be looked at."""
    return bool(demands.excluded or demands.constraints)


def _unfit(demands: Demands, nodes: tuple[Node, ...]) -> frozenset[str]:
    constraints = _parsed(demands)
    return frozenset(
        node.name
        for node in nodes
        if node.name in demands.excluded
        or not all(one.allows(node.features) for one in constraints)
    )


def _parsed(demands: Demands) -> list[Constraint]:
    return [parse_constraint(text) for text in sorted(demands.constraints)]
