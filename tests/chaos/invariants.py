"""What must hold once things had time to settle. Pure functions of what was seen.

Each returns its violations in words, an empty list where it holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from tests.chaos.observe import Snapshot
from tests.chaos.training import doubled, twins

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
    """The controller works, and can write its history."""
    age_s = seen.status.get("age_s")
    if age_s is None:
        return ["no status is published"]
    if age_s > _STATUS_S:
        return [f"the status is {age_s:.0f} s old"]
    said = [seen.status.get("controller", {}).get(trouble) for trouble in ("error", "history")]
    return [f"the controller says: {words}" for words in said if words]


def everybody_trains(seen: Snapshot) -> list[str]:
    """Every trainer trains, on all the nodes that it has."""
    found = []
    for one in seen.trainers:
        elements = ", ".join(f"{e.task} {e.state} {e.node}" for e in seen.of(one.array))
        last = one.training.newest
        if last is None:
            found.append(f"{one.name} ({one.array}) has not made a step")
        elif (idle_s := seen.time_s - last.last_s) > _FRESH_S:
            words = f"has not made a step for {idle_s:.0f} s; elements: {elements}"
            found.append(f"{one.name} ({one.array}) {words}")
    return found


def all_its_nodes_train_together(seen: Snapshot) -> list[str]:
    """The newest generation of a trainer has exactly the nodes that run elements of it."""
    found = []
    for one in seen.trainers:
        there = sorted(element.node for element in seen.running(one.array)) * one.ask.processes
        last = one.training.newest
        trains = [] if last is None else list(last.places.values())
        if sorted(there) != sorted(trains):
            found.append(f"{one.name} has processes on {there}, and trains on {trains}")
    return found


def one_element_a_node(seen: Snapshot) -> list[str]:
    """No node has two elements or, where jobs share nodes, two of one trainer."""
    there = [one for one in seen.elements or () if one.state in _THERE]
    nodes = Counter((one.node, one.array if seen.memory_mb else 0) for one in there)
    return [f"{number} elements on {node}" for (node, _), number in nodes.items() if number > 1]


def nothing_is_given_twice(seen: Snapshot) -> list[str]:
    """No core and no GPU has two jobs, and the jobs of a node have no more memory than it has."""
    had: dict[tuple[str, str], list[int]] = defaultdict(list)
    memory_mb: Counter[str] = Counter()
    for part in seen.parts:
        memory_mb[part.node] += part.memory_mb
        for thing in part.things:
            had[part.node, thing].append(part.job)
    return [
        f"jobs {jobs} have {thing} of {node}"
        for (node, thing), jobs in had.items()
        if len(jobs) > 1
    ] + [
        f"jobs have {used} MB of {node}, which has {seen.memory_mb}"
        for node, used in memory_mb.items()
        if used > seen.memory_mb > 0
    ]


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
        if len(there) > (most := one.ask.max_nodes):
            found.append(f"{one.name} has {len(there)} nodes, and wants {most} at most")
        if known.get("state") == "given up":
            found.append(f"{one.name} is given up: {known.get('why')}")
    return found


def nobody_fails_beside_it(seen: Snapshot) -> list[str]:
    """No trainer has failed that the last faults left alone."""
    return [
        f"trainer {array} failed, though the fault hit another one"
        for array, before in seen.spared.items()
        if seen.failures(array) > before
    ]


def nothing_waits_unheld(seen: Snapshot) -> list[str]:
    """No element waits for Slurm to start it by itself."""
    return [
        f"element {one} waits unheld ({one.reason})"
        for one in seen.elements or ()
        if one.state == "PENDING" and one.reason.strip("()") in _UNHELD
    ]


def no_element_is_leaked(seen: Snapshot) -> list[str]:
    """Nothing is left of trainers that are over."""
    known = {one.array for one in seen.trainers}
    left = ("PENDING", *_THERE)
    return [
        f"element {one} of a trainer that is over is {one.state} ({one.reason})"
        for one in seen.elements or ()
        if one.state in left and one.array not in known
    ]


def no_process_is_leaked(seen: Snapshot) -> list[str]:
    """Every process of an element belongs to one that runs there, and to its present life."""
    there = {(one.array, one.task, one.node) for one in seen.elements or () if one.state in _THERE}
    stray: dict[str, list[int]] = defaultdict(list)
    lives: dict[str, set[str]] = defaultdict(set)
    for one in seen.processes:
        element = f"element {one.array}_{one.task}"
        lives[element].add(one.life)
        if seen.elements is not None and (one.array, one.task, one.node) not in there:
            stray[f"of {element} are left on {one.node}"].append(one.pid)
    found = [f"processes {pids} {words}" for words, pids in stray.items()]
    several = {element: len(those) for element, those in lives.items() if len(those) > 1}
    return found + [f"{element} lives {times} times at once" for element, times in several.items()]


def ordinary_jobs_are_well(seen: Snapshot) -> list[str]:
    """Ordinary jobs have started, and none has failed."""
    return list(seen.problems)


SETTLED: Sequence[Callable[[Snapshot], list[str]]] = (
    slurm_answers,
    controller_publishes,
    everybody_trains,
    all_its_nodes_train_together,
    one_element_a_node,
    nothing_is_given_twice,
    as_planned,
    nothing_waits_unheld,
    no_element_is_leaked,
    no_process_is_leaked,
    ordinary_jobs_are_well,
)


def unsettled(seen: Snapshot) -> list[str]:
    """Return what does not hold, or not yet."""
    return [words for holds in SETTLED for words in holds(seen)]


def never_so(seen: Snapshot) -> list[str]:
    """Return what must not be so at any moment, settled or not."""
    found = one_element_a_node(seen) + nothing_is_given_twice(seen) + nobody_fails_beside_it(seen)
    for one in seen.trainers:
        made = one.training.generations
        wrong = twins(made, seen.apart) + doubled(made, one.ask.processes)
        found += [f"{one.name}: {words}" for words in wrong]
    return found


def left_behind(seen: Snapshot) -> list[str]:
    """Return what is left of trainers, all of which were cancelled."""
    if seen.elements is None:
        return slurm_answers(seen)
    return no_element_is_leaked(seen) + no_process_is_leaked(seen)
