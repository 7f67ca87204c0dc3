"""Trainers that fail and nodes on which trainers fail: who is given up, which node is left alone.

Pure: the memory of failures and the views in, actions and the next memory out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bftrainer_slurm.controller.actions import Action, Cancel, Revive, Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.view import Failing, Memory, Suspect, TrainerView
from bftrainer_slurm.model import ElementState

_IN_A_ROW_S = 3600.0  # failures further apart have nothing to do with each other
_OUTAGE_S = 900.0  # who has trained before may wait that long for a file system to come back
_CERTAIN = 3  # failures on different nodes
_SUSPICIOUS = 2  # failures in a row on the same node
_PATIENCE_S = 5.0  # after an element failed, doubled by each further failure
_CANCEL_AGAIN_S = 60.0
_BATCH_SCRIPT = "the batch script, or its node, has failed; its output says more"


@dataclass(frozen=True, slots=True)
class Where:
    """Where trainers can be tried: nodes that are free now, and all that are in service."""

    free: frozenset[str]
    in_service: frozenset[str]


def failed(
    memory: Memory, array: int, node: str | None, text: str, trained: bool, now_s: float
) -> Memory:
    """Remember a failure. ``node`` is None where it cannot be said on which one.

    ``trained``: the trainer has made progress at some time, so its script is not simply wrong.
    """
    before = memory.failing.get(array)
    if before is None or now_s - before.last_s > _IN_A_ROW_S:
        before = Failing(since_s=now_s)
    on_node = before.on_node + 1 if node is not None and node == before.node else 1
    failing = replace(
        before,
        count=before.count + 1,
        node=node or before.node,
        on_node=on_node if node else before.on_node,
        nodes=before.nodes if node is None or node in before.nodes else (*before.nodes, node),
        text=text,
        trained=trained,
        last_s=now_s,
    )
    return replace(memory, failing={**memory.failing, array: failing})


def progressed(memory: Memory, array: int) -> Memory:
    """Forget the failures of a trainer that trains again; the node that it left stays suspected."""
    if array not in memory.failing:
        return memory
    return replace(memory, failing=_without(memory.failing, array))


def bring_back(
    view: TrainerView, memory: Memory, trained: bool, now_s: float
) -> tuple[list[Action], Memory]:
    """Requeue and hold failed elements, and let the trainer rest for a while.

    Elements that fail together count once: when one fails, its peers often do.
    """
    elements = list(view.with_state(ElementState.FAILED))
    cancelled = any(view.with_state(ElementState.CANCELLED))
    over = view.array in memory.given_up or (cancelled and not view.live and not view.spare)
    if not elements or over:
        return [], memory
    node = elements[0].node if len(elements) == 1 else None
    memory = failed(memory, view.array, node, _BATCH_SCRIPT, trained, now_s)
    rest_s = _PATIENCE_S * 2 ** min(memory.failing[view.array].count - 1, 6)
    patient_until = {**memory.patient_until, view.array: now_s + rest_s}
    ids = tuple(element.id for element in elements)
    revived = {**memory.revived, view.array: frozenset(ids)}
    return [Revive(ids)], replace(memory, patient_until=patient_until, revived=revived)


def cancel_revived(
    views: tuple[TrainerView, ...], memory: Memory, now_s: float
) -> tuple[list[Action], Memory]:
    """Cancel what was brought back of trainers that their owners were just cancelling.

    scancel passes over what has failed, so a trainer that was cancelled between a look and the
    revival after it would live on in that alone.
    """
    cancels: list[Action] = []
    kept, patient_until = {}, dict(memory.patient_until)
    for view in views:
        ids = memory.revived.get(view.array)
        if ids is None:
            continue
        revived = {one.state for one in view.trainer.elements if one.id in ids}
        others = {one.state for one in view.trainer.elements if one.id not in ids}
        if all(state.over for state in revived):
            continue
        if ElementState.CANCELLED in others and all(state.over for state in others):
            cancels.append(Cancel(view.array, "cancelled by its owner"))
            kept[view.array] = ids
            patient_until[view.array] = now_s + _PATIENCE_S
        elif ElementState.ENDING in others:
            kept[view.array] = ids
    return cancels, replace(memory, revived=kept, patient_until=patient_until)


def judge(
    views: tuple[TrainerView, ...],
    memory: Memory,
    where: Where,
    now_s: float,
    settings: Settings,
) -> tuple[list[Shrink], Memory]:
    """Give up the trainers that fail everywhere, and take others off nodes that may be bad."""
    actions: list[Shrink] = []
    shared = Counter(one.nodes[0] for one in memory.failing.values() if len(one.nodes) == 1)
    for view in views:
        failing = memory.failing.get(view.array)
        if failing is None or view.array in memory.given_up:
            continue
        if _hopeless(failing, where, now_s, settings):
            memory = _give_up(view, failing, memory)
        elif failing.node and _may_be_bad(failing, view, where, shared, settings):
            element = view.placed.get(failing.node)
            running = {one.id for one in view.with_state(ElementState.RUNNING)}
            if element is not None and element in running:
                actions.append(Shrink((element,), f"{failing.node} may be a bad node"))
            memory = _suspect(view, failing, memory, now_s + settings.bad_node_s)
    return actions, memory


def cancel_given_up(
    views: tuple[TrainerView, ...], memory: Memory, now_s: float
) -> tuple[list[Action], Memory]:
    """Cancel what is left of trainers that are given up, until nothing is."""
    cancels = [
        Cancel(view.array, memory.given_up[view.array])
        for view in views
        if view.array in memory.given_up
        and (view.placed or view.spare)
        and now_s - memory.cancelled_s.get(view.array, float("-inf")) >= _CANCEL_AGAIN_S
    ]
    times = dict.fromkeys((cancel.array for cancel in cancels), now_s)
    return list(cancels), replace(memory, cancelled_s={**memory.cancelled_s, **times})


def _hopeless(failing: Failing, where: Where, now_s: float, settings: Settings) -> bool:
    if failing.trained and now_s - failing.since_s < _OUTAGE_S:
        return False
    if len(failing.nodes) > 1 and failing.count >= _CERTAIN:
        return True
    # There was only one node to try it on, or nobody can say on which it failed.
    elsewhere = bool(failing.nodes) and bool(where.in_service.difference(failing.nodes))
    return failing.count >= settings.max_failures * (2 if elsewhere else 1)


def _may_be_bad(
    failing: Failing,
    view: TrainerView,
    where: Where,
    shared: Mapping[str, int],
    settings: Settings,
) -> bool:
    """Whether the node on which it failed last may be the reason, and there is another to try."""
    if failing.suspect is not None and failing.suspect.node == failing.node:
        return failing.on_node > failing.suspect.after  # it came back after all, and failed again
    if len(failing.nodes) > 1 and not failing.trained:
        return False  # its script, rather
    if shared[failing.node] > 1:
        return True  # others failed there too
    elsewhere = (where.free | view.placed.keys()) - {failing.node}
    return failing.on_node >= (_SUSPICIOUS if elsewhere else settings.max_failures)


def _suspect(view: TrainerView, failing: Failing, memory: Memory, until_s: float) -> Memory:
    """Leave the node alone; one at a time for each trainer, so that nobody can shut off many."""
    avoid = _innocent(failing, memory)
    avoid[failing.node] = until_s
    suspect = Suspect(failing.node, failing.on_node, until_s)
    return replace(
        memory,
        avoid=avoid,
        failing={**memory.failing, view.array: replace(failing, suspect=suspect)},
    )


def _give_up(view: TrainerView, failing: Failing, memory: Memory) -> Memory:
    nodes = f" on {', '.join(failing.nodes)}" if failing.nodes else ""
    why = f"failed {failing.count} times without progress{nodes}\n{failing.text}".strip()
    return replace(
        memory,
        avoid=_innocent(failing, memory),
        failing=_without(memory.failing, view.array),
        given_up={**memory.given_up, view.array: why},
    )


def _innocent(failing: Failing, memory: Memory) -> dict[str, float]:
    """The nodes to avoid, without the one that this trainer's failures had brought there."""
    avoid, suspect = dict(memory.avoid), failing.suspect
    if suspect is not None and avoid.get(suspect.node) == suspect.until_s:
        del avoid[suspect.node]
    return avoid


def _without(failing: Mapping[int, Failing], array: int) -> dict[int, Failing]:
    return {key: one for key, one in failing.items() if key != array}
