"""What must hold once things had time to settle. Pure functions of what was seen.

Each returns the violations, in words; none: it holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from scripts.chaos_suite.observe import Snapshot, Trainer
from scripts.chaos_suite.training import doubled, twins

_FRESH_S = 8.0  # without a step for so long, a trainer does not train
_STATUS_S = 15.0

# Slurm would start such an element by itself, sooner or later.
_UNHELD = ("BeginTime", "None", "Priority", "Resources")
_THERE = ("RUNNING", "COMPLETING", "CONFIGURING")


def slurm_answers(seen: Snapshot) -> list[str]:
    """Slurm is there, and all nodes are in service."""
    if seen.elements is None:
        return ["slurmctld does not answer"]
    good = ("idle", "alloc", "mix", "comp", "plnd")
    return [
        f"node {node} is {state}"
        for node, state in seen.nodes.items()
        if not state.startswith(good) or state.endswith("*")
    ]


def controller_publishes(seen: Snapshot) -> list[str]:
    """The controller works."""
    age_s = seen.status.get("age_s")
    if age_s is None:
        return ["no status is published"]
    if age_s > _STATUS_S:
        return [f"the status is {age_s:.0f} s old"]
    error = seen.status.get("controller", {}).get("error")
    return [f"the controller says: {error}"] if error else []


def history_is_written(seen: Snapshot) -> list[str]:
    """The history has no trouble left."""
    trouble = seen.status.get("controller", {}).get("history")
    return [f"the controller says: {trouble}"] if trouble else []


def everybody_trains(seen: Snapshot) -> list[str]:
    """Every trainer trains, on all the nodes that it has."""
    found = []
    for one in seen.trainers:
        newest = max(one.generations, key=lambda made: made.last_s, default=None)
        if newest is None:
            found.append(f"{one.name} ({one.array}) has not made a step")
        elif seen.time_s - newest.last_s > _FRESH_S:
            words = _words(seen, one)
            found.append(
                f"{one.name} ({one.array}) has not made a step for "
                f"{seen.time_s - newest.last_s:.0f} s; {words}"
            )
    return found


def all_its_nodes_train_together(seen: Snapshot) -> list[str]:
    """The newest generation of a trainer has exactly the nodes that run elements of it."""
    found = []
    for one in seen.trainers:
        newest = max(one.generations, key=lambda made: made.last_s, default=None)
        there = sorted(element.node for element in seen.running(one.array))
        trains = [] if newest is None else sorted(newest.places.values())
        if there != trains:
            found.append(f"{one.name} has elements on {there}, and trains on {trains}")
    return found


def one_element_a_node(seen: Snapshot) -> list[str]:
    """No node has two elements."""
    nodes = Counter(one.node for one in seen.elements or () if one.state in _THERE)
    return [f"{number} elements on {node}" for node, number in nodes.items() if number > 1]


def as_planned(seen: Snapshot) -> list[str]:
    """What runs is what the controller knows of, and not more than the trainer wants."""
    found = []
    for one in seen.trainers:
        there = {element.node for element in seen.running(one.array)}
        known = seen.published(one.array)
        planned = set(known.get("nodes", ())) | set(known.get("starting", ()))
        if there - planned:
            found.append(f"{one.name} runs on {sorted(there - planned)}, unknown to the controller")
        if planned - there:
            found.append(f"{one.name} does not run on {sorted(planned - there)}, as it is shown to")
        if len(there) > one.max_nodes:
            found.append(f"{one.name} has {len(there)} nodes, and wants {one.max_nodes} at most")
        if known.get("state") == "given up":
            found.append(f"{one.name} is given up: {known.get('why')}")
    return found


def nothing_waits_unheld(seen: Snapshot) -> list[str]:
    """No element waits for Slurm to start it by itself."""
    return [
        f"element {one.array}_{one.task} waits unheld ({one.reason})"
        for one in seen.elements or ()
        if one.state == "PENDING" and one.reason.strip("()") in _UNHELD
    ]


def no_element_is_leaked(seen: Snapshot) -> list[str]:
    """Of trainers that are over nothing is left, and nobody runs whom nobody knows."""
    known = {one.array for one in seen.trainers}
    left = ("PENDING", *_THERE)
    return [
        f"element {one.array}_{one.task} of a trainer that is over is {one.state} ({one.reason})"
        for one in seen.elements or ()
        if one.state in left and (one.array in seen.over or one.array not in known)
    ]


def no_process_is_leaked(seen: Snapshot) -> list[str]:
    """Every process of an element belongs to one that runs there, and to its present life."""
    there = {(one.array, one.task, one.node) for one in seen.elements or () if one.state in _THERE}
    stray: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    lives: dict[tuple[int, str], set[str]] = defaultdict(set)
    for process in seen.processes:
        place = (process.array, process.task, process.node)
        lives[process.array, process.task].add(process.life)
        if seen.elements is not None and place not in there:
            stray[place].append(process.pid)
    found = [
        f"processes {pids} of element {array}_{task} are left on {node}"
        for (array, task, node), pids in stray.items()
    ]
    found += [
        f"element {array}_{task} lives {len(several)} times at once"
        for (array, task), several in lives.items()
        if len(several) > 1
    ]
    return found


def ordinary_jobs_are_well(seen: Snapshot) -> list[str]:
    """Ordinary jobs have started, and none has failed."""
    return list(seen.problems)


SETTLED: Sequence[Callable[[Snapshot], list[str]]] = (
    slurm_answers,
    controller_publishes,
    history_is_written,
    everybody_trains,
    all_its_nodes_train_together,
    one_element_a_node,
    as_planned,
    nothing_waits_unheld,
    no_element_is_leaked,
    no_process_is_leaked,
    ordinary_jobs_are_well,
)


def unsettled(seen: Snapshot) -> list[str]:
    """Return all that does not hold (yet)."""
    return [words for holds in SETTLED for words in holds(seen)]


def never_so(seen: Snapshot) -> list[str]:
    """Return what must not be the case at any moment, settled or not."""
    found = one_element_a_node(seen)
    for one in seen.trainers:
        found += [f"{one.name}: {words}" for words in twins(one.generations, seen.apart)]
        found += [f"{one.name}: {words}" for words in doubled(one.generations)]
    return found


def _words(seen: Snapshot, one: Trainer) -> str:
    elements = [f"{e.task} {e.state} {e.node}" for e in seen.elements or () if e.array == one.array]
    return f"elements: {', '.join(elements)}"
