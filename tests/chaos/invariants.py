"""What must hold once things had time to settle. Pure functions of what was seen.

Each yields its violations in words, nothing where it holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from tests.chaos.observe import Snapshot
from tests.chaos.training import doubled, twins

_FRESH_S = 8.0  # without a step for so long, a trainer does not train
_STATUS_S = 15.0

_GOOD = ("idle", "alloc", "mix", "comp", "plnd")  # states of nodes
# Slurm would start such an element by itself, sooner or later.
_UNHELD = ("BeginTime", "None", "Priority", "Resources")
_THERE = ("RUNNING", "COMPLETING", "CONFIGURING")


def slurm_answers(seen: Snapshot) -> Iterator[str]:
    """Slurm is there, and all nodes are in service."""
    if seen.elements is None:
        yield "slurmctld does not answer"
        return
    for node, state in seen.nodes.items():
        if not state.startswith(_GOOD) or state.endswith("*"):
            yield f"node {node} is {state}"


def controller_publishes(seen: Snapshot) -> Iterator[str]:
    """The controller works, and can write its history."""
    age_s, said = seen.status.get("age_s"), seen.status.get("controller", {})
    if age_s is None:
        yield "no status is published"
    elif age_s > _STATUS_S:
        yield f"the status is {age_s:.0f} s old"
    else:
        troubles = filter(None, map(said.get, ("error", "history")))
        yield from (f"the controller says: {words}" for words in troubles)


def everybody_trains(seen: Snapshot) -> Iterator[str]:
    """Every trainer trains on exactly the nodes that run elements of it, as the controller says.

    They are not more than it wants.
    """
    for one in seen.trainers:
        there = sorted(element.node for element in seen.running(one.array))
        known, last = seen.published(one.array), one.training.newest
        planned = sorted({*known.get("nodes", ()), *known.get("starting", ())})
        trains = [] if last is None else sorted(last.places.values())
        if last is None:
            yield f"{one.name} ({one.array}) has not made a step"
        elif (idle_s := seen.time_s - last.last_s) > _FRESH_S:
            elements = ", ".join(f"{e.task} {e.state} {e.node}" for e in seen.of(one.array))
            words = f"has not made a step for {idle_s:.0f} s; elements: {elements}"
            yield f"{one.name} ({one.array}) {words}"
        if sorted(there * one.ask.processes) != trains:
            yield f"{one.name} has elements on {there}, and trains on {trains}"
        if there != planned:
            yield f"{one.name} has elements on {there}, and the controller says {planned}"
        if len(there) > (most := one.ask.max_nodes):
            yield f"{one.name} has {len(there)} nodes, and wants {most} at most"
        if known.get("state") == "given up":
            yield f"{one.name} is given up: {known.get('why')}"


def one_element_a_node(seen: Snapshot) -> Iterator[str]:
    """No node has two elements or, where jobs share nodes, two of one trainer."""
    there = [one for one in seen.elements or () if one.state in _THERE]
    nodes = Counter((one.node, one.array if seen.memory_mb else 0) for one in there)
    for (node, _), number in nodes.items():
        if number > 1:
            yield f"{number} elements on {node}"


def nothing_is_given_twice(seen: Snapshot) -> Iterator[str]:
    """No core and no GPU has two jobs, and the jobs of a node have no more memory than it has."""
    had: dict[tuple[str, str], list[int]] = defaultdict(list)
    memory_mb: Counter[str] = Counter()
    for part in seen.parts:
        memory_mb[part.node] += part.memory_mb
        for thing in part.things:
            had[part.node, thing].append(part.job)
    for (node, thing), jobs in had.items():
        if len(jobs) > 1:
            yield f"jobs {jobs} have {thing} of {node}"
    for node, used in memory_mb.items():
        if used > seen.memory_mb > 0:
            yield f"jobs have {used} MB of {node}, which has {seen.memory_mb}"


def nobody_fails_beside_it(seen: Snapshot) -> Iterator[str]:
    """No trainer has failed that the last faults left alone."""
    for array, before in seen.spared.items():
        if seen.failures(array) > before:
            yield f"trainer {array} failed, though the fault hit another one"


def no_element_is_leaked(seen: Snapshot) -> Iterator[str]:
    """No element waits for Slurm to start it by itself, and none is left of trainers that ended."""
    known = {one.array for one in seen.trainers}
    for one in seen.elements or ():
        if one.state == "PENDING" and one.reason.strip("()") in _UNHELD:
            yield f"element {one} waits unheld ({one.reason})"
        if one.state in ("PENDING", *_THERE) and one.array not in known:
            yield f"element {one} of a trainer that is over is {one.state} ({one.reason})"


def no_process_is_leaked(seen: Snapshot) -> Iterator[str]:
    """Every process of an element belongs to one that runs there, and to its present life."""
    there = {(one.array, one.task, one.node) for one in seen.elements or () if one.state in _THERE}
    stray: dict[str, list[int]] = defaultdict(list)
    lives: dict[str, set[str]] = defaultdict(set)
    for one in seen.processes:
        element = f"element {one.array}_{one.task}"
        lives[element].add(one.life)
        if seen.elements is not None and (one.array, one.task, one.node) not in there:
            stray[f"of {element} are left on {one.node}"].append(one.pid)
    yield from (f"processes {pids} {words}" for words, pids in stray.items())
    for element, those in lives.items():
        if len(those) > 1:
            yield f"{element} lives {len(those)} times at once"


def no_generation_has_a_twin(seen: Snapshot) -> Iterator[str]:
    """No old generation trains on beside a new one, and none has two processes for one part."""
    for one in seen.trainers:
        made = one.training.generations
        for words in twins(made, seen.apart) + doubled(made, one.ask.processes):
            yield f"{one.name}: {words}"


Invariant = Callable[[Snapshot], Iterator[str]]
ALWAYS: Sequence[Invariant] = (
    one_element_a_node,
    nothing_is_given_twice,
    nobody_fails_beside_it,
    no_generation_has_a_twin,
)
SETTLED: Sequence[Invariant] = (
    slurm_answers,
    controller_publishes,
    everybody_trains,
    one_element_a_node,
    nothing_is_given_twice,
    no_element_is_leaked,
    no_process_is_leaked,
    lambda seen: iter(seen.problems),  # ordinary jobs have started, and none has failed
)


def unsettled(seen: Snapshot) -> list[str]:
    """Return what does not hold, or not yet."""
    return [words for holds in SETTLED for words in holds(seen)]


def never_so(seen: Snapshot) -> list[str]:
    """Return what must not be so at any moment, settled or not."""
    return [words for holds in ALWAYS for words in holds(seen)]


def left_behind(seen: Snapshot) -> list[str]:
    """Return what is left of trainers, all of which were cancelled."""
    if seen.elements is None:
        return [*slurm_answers(seen)]
    return [*no_element_is_leaked(seen), *no_process_is_leaked(seen)]
